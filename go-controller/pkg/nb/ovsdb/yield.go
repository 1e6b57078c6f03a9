package ovsdb

import (
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// withhold returns the wanted rows without those that yield to rows of other owners.
func (p *plan) withhold(want []nb.Row) ([]nb.Row, error) {
	rest := make([]nb.Row, 0, len(want))
	for _, row := range want {
		s, ok := nb.SlotOf(row.Parent, row.Model)
		if ok {
			p.slots[s] = true
		}
		if ok && row.Yields {
			others, err := p.others(s)
			if err != nil {
				return nil, err
			}
			if len(others) > 0 {
				continue
			}
		}
		rest = append(rest, row)
	}
	return rest, nil
}

// others returns the rows that other owners have in a slot, by owner.
func (p *plan) others(s nb.Slot) (map[nb.Owner]found, error) {
	rows, err := p.view.inSlot(s)
	delete(rows, p.owner)
	return rows, err
}

// slotsOf returns the slots of rows.
func slotsOf(rows map[name]*found) []nb.Slot {
	var slots []nb.Slot
	for id, f := range rows {
		if s, ok := nb.SlotOf(tableByName[id.table].parentOf(f.row), f.row); ok {
			slots = append(slots, s)
		}
	}
	return slots
}

// exchange deletes the yielding rows of others from slots that the owner wants, and
// restores one in each slot that the owner had and no longer wants.
func (p *plan) exchange(had []nb.Slot, yields *nb.Yields, newName func() string) error {
	t, wanted := tableByName[nbdb.NATTable], map[nb.Slot]bool{}
	for _, w := range p.rows {
		s, ok := nb.SlotOf(w.row.Parent, w.row.Model)
		if !ok {
			continue
		}
		wanted[s] = true
		owners := yields.In(s)
		if len(owners) == 0 || w.row.Yields {
			continue
		}
		others, err := p.others(s)
		if err != nil {
			return err
		}
		for _, o := range owners {
			if f, ok := others[o]; ok {
				p.addDeletion(t, &f)
			}
		}
	}
	for _, s := range had {
		owners := slices.DeleteFunc(yields.In(s), func(o nb.Owner) bool { return o == p.owner })
		p.slots[s] = true
		if wanted[s] || len(owners) == 0 {
			continue
		}
		others, err := p.others(s)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			continue
		}
		wanted[s] = true
		if err := p.restore(owners[0], yields.Row(s, owners[0]), newName); err != nil {
			return err
		}
	}
	return nil
}

// restore adds a row of another owner that had yielded.
func (p *plan) restore(o nb.Owner, row nb.Row, newName func() string) error {
	w := &wanted{table: tableByName[nbdb.NATTable], owner: o, row: row, model: row.Model, uuid: newName()}
	p.view.tables.add(o.Feature, w.table)
	p.rows = append(p.rows, w)
	return p.identify(w)
}

// shares reports whether the plan has any of the given slots.
func (p *plan) shares(slots map[nb.Slot]bool) bool {
	for s := range p.slots {
		if slots[s] {
			return true
		}
	}
	return false
}
