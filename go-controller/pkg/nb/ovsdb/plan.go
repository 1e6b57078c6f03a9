package ovsdb

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// wanted is one row a planner wants, on its way to the database.
type wanted struct {
	table     *table
	owner     nb.Owner
	row       nb.Row
	ids       map[string]string // external_ids, nil in tables without them
	model     model.Model       // copy with references resolved
	have      *found            // the row as it is; nil if it is to be inserted
	uuid      string            // of the row if have is set, else its name in the transaction
	parentRef *reference        // to insert into the parent's column, nil if already there
}

// reference is a cell of a reference column to which a row must be added or from which it
// must be removed.
type reference struct {
	table  *table // of the parent
	uuid   string // of the parent; "" if it is not known
	column string
}

// deletion is a row to be deleted.
type deletion struct {
	table *table
	found
	parentRef *reference // in the parent; nil for root tables and if the parent is deleted too
}

// name identifies a row within a plan.
type name struct{ table, key string }

// plan is the difference between the rows that an owner wants and those in the database.
type plan struct {
	owner  nb.Owner
	view   view
	rows   []*wanted
	byName map[name]*wanted
	gone   []*deletion
	dead   map[string]bool // UUIDs in gone
	looked map[name]found  // results of lookup
	// slots are those whose rows depend on this plan, or that this plan depends on.
	slots map[nb.Slot]bool
}

// newPlan diffs want against the view. newName returns a fresh name for a row
// within the transaction.
func newPlan(v view, o nb.Owner, want []nb.Row, yields *nb.Yields, newName func() string) (*plan, error) {
	p := &plan{owner: o, view: v, byName: map[name]*wanted{}, dead: map[string]bool{}, looked: map[name]found{}, slots: map[nb.Slot]bool{}}
	want, err := p.withhold(want)
	if err != nil {
		return nil, err
	}
	if err := p.collect(want); err != nil {
		return nil, err
	}
	have, err := p.existing()
	if err != nil {
		return nil, err
	}
	had := slotsOf(have)
	p.match(have, newName)
	if err := p.exchange(had, yields, newName); err != nil {
		return nil, err
	}
	for _, w := range p.rows {
		if err := p.placeUnderParent(w, newName); err != nil {
			return nil, err
		}
	}
	for _, w := range p.rows {
		if err := p.resolve(w); err != nil {
			return nil, err
		}
		if err := p.checkConflict(w); err != nil {
			return nil, err
		}
	}
	p.detach()
	return p, nil
}

// collect checks the wanted rows and sorts them, parents first.
func (p *plan) collect(want []nb.Row) error {
	seen := make(map[name]bool, len(want))
	for _, row := range want {
		typ := reflect.TypeOf(row.Model)
		if typ == nil || typ.Kind() != reflect.Pointer || tableByType[typ.Elem()] == nil {
			return fmt.Errorf("row %q of %s: no table for a %T", row.ID, p.owner, row.Model)
		}
		w := &wanted{table: tableByType[typ.Elem()], owner: p.owner, row: row, model: row.Model}
		p.view.tables.add(p.owner.Feature, w.table)
		if err := p.identify(w); err != nil {
			return fmt.Errorf("%s row %q of %s: %w", w.table.Name, row.ID, p.owner, err)
		}
		id := name{w.table.Name, w.row.ID}
		if seen[id] {
			return fmt.Errorf("%s row %q of %s is wanted twice", w.table.Name, row.ID, p.owner)
		}
		seen[id] = true
		if len(w.table.keys) > 0 {
			p.byName[name{w.table.Name, w.table.key(row.Model)}] = w
		}
		p.rows = append(p.rows, w)
	}
	slices.SortStableFunc(p.rows, func(a, b *wanted) int { return a.table.depth - b.table.depth })
	return nil
}

// identify determines the ID and external_ids of a wanted row.
func (p *plan) identify(w *wanted) error {
	t := w.table
	parent := w.row.Parent
	if _, ok := t.Parents[parent.Table]; !ok && (parent != nb.Parent{} || !t.root) {
		return fmt.Errorf("parent %q cannot hold such a row", parent.Table)
	}
	if t.Identity != nil {
		if o, ok := t.Identity(w.row.Model); !ok || o != p.owner {
			return fmt.Errorf("%q belongs to %q by the rule of its table", t.key(w.row.Model), o)
		}
		w.row.ID = t.key(w.row.Model)
		return nil
	}
	if w.row.ID == "" {
		return fmt.Errorf("row has no id")
	}
	var err error
	w.ids, err = wantedIDs(t, w.owner, w.row, t.idsOf(w.row.Model))
	return err
}

// existing returns the owner's rows by table and ID. A second row with the same ID is left
// over from an interrupted or competing write and is deleted.
func (p *plan) existing() (map[name]*found, error) {
	have := make(map[name]*found, len(p.rows))
	for _, t := range p.view.tables.of(p.owner.Feature) {
		rows, err := p.view.owned(t, p.owner)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			id := name{t.Name, rows[i].id}
			if have[id] != nil {
				p.addDeletion(t, &rows[i])
				continue
			}
			have[id] = &rows[i]
		}
	}
	return have, nil
}

// match pairs wanted rows with existing ones and marks the other existing ones for
// deletion.
func (p *plan) match(have map[name]*found, newName func() string) {
	for _, w := range p.rows {
		id := name{w.table.Name, w.row.ID}
		if w.have = have[id]; w.have != nil {
			w.uuid = w.have.uuid
			delete(have, id)
		} else {
			w.uuid = newName()
		}
	}
	for id, f := range have {
		p.addDeletion(tableByName[id.table], f)
	}
}

func (p *plan) addDeletion(t *table, f *found) {
	p.gone = append(p.gone, &deletion{table: t, found: *f})
	p.dead[f.uuid] = true
}

// placeUnderParent finds the parent of a row. If its parent has changed or is newly
// created, the row is deleted and inserted again.
func (p *plan) placeUnderParent(w *wanted, newName func() string) error {
	parent := w.row.Parent
	pw := p.byName[name{parent.Table, parent.Name}]
	if w.have != nil {
		moved := w.table.parentOf(w.have.row) != parent
		parentIsNew := !w.table.root && pw != nil && pw.have == nil
		if moved || parentIsNew {
			p.addDeletion(w.table, w.have)
			w.have, w.uuid = nil, newName()
		} else if !w.table.root {
			return nil
		}
	}
	if parent == (nb.Parent{}) {
		return nil
	}
	ref := &reference{table: tableByName[parent.Table], column: w.table.Parents[parent.Table]}
	var holder model.Model
	if pw != nil {
		ref.uuid = pw.uuid
		if pw.have != nil {
			holder = pw.have.row
		}
	} else {
		f, err := p.lookup(ref.table, parent.Name)
		if err != nil {
			return fmt.Errorf("%s row %q of %s: parent: %w", w.table.Name, w.row.ID, p.owner, err)
		}
		ref.uuid, holder = f.uuid, f.row
	}
	if w.have != nil && holder != nil && p.view.holds(ref.table, holder, ref.column, w.uuid) {
		return nil
	}
	w.parentRef = ref
	return nil
}

// lookup finds a row that is not in this plan by its key.
func (p *plan) lookup(t *table, key string) (found, error) {
	if f, ok := p.looked[name{t.Name, key}]; ok && !p.dead[f.uuid] {
		return f, nil
	}
	rows, err := p.view.named(t, key)
	if err != nil {
		return found{}, err
	}
	rows = slices.DeleteFunc(rows, func(f found) bool { return p.dead[f.uuid] })
	if len(rows) > 1 { // only foreign rows can share a name with ours
		ours := slices.DeleteFunc(slices.Clone(rows), func(f found) bool {
			_, _, ok := t.ownerOf(f.row)
			return !ok
		})
		if len(ours) != 1 {
			return found{}, fmt.Errorf("%s %q is ambiguous: %d rows have that name", t.Name, key, len(rows))
		}
		rows = ours
	}
	if len(rows) == 0 {
		return found{}, fmt.Errorf("%s %q: %w", t.Name, key, nb.ErrNoParent)
	}
	p.looked[name{t.Name, key}] = rows[0]
	return rows[0], nil
}

// resolve fills in the columns that refer to other rows.
func (p *plan) resolve(w *wanted) error {
	if len(w.row.Refs) == 0 {
		return nil
	}
	w.model = model.Clone(w.row.Model)
	for _, ref := range w.row.Refs {
		col, ok := w.table.refColumn(ref.Column)
		target := tableByName[ref.Table]
		if !ok || target == nil {
			return fmt.Errorf("%s row %q of %s: column %q cannot refer to %q", w.table.Name, w.row.ID, p.owner, ref.Column, ref.Table)
		}
		var uuid string
		if other := p.byName[name{ref.Table, ref.Name}]; other != nil {
			uuid = other.uuid
		} else {
			f, err := p.lookup(target, ref.Name)
			if err != nil {
				return fmt.Errorf("%s row %q of %s: column %s: %w", w.table.Name, w.row.ID, p.owner, ref.Column, err)
			}
			uuid = f.uuid
		}
		switch field := structOf(w.model).Field(col.field).Addr().Interface().(type) {
		case **string:
			*field = &uuid
		case *[]string:
			*field = append(*field, uuid)
		}
	}
	return nil
}

// checkConflict returns an error if the name of a row is taken by a row of another owner or
// by a foreign row.
func (p *plan) checkConflict(w *wanted) error {
	t := w.table
	if len(t.keys) == 0 {
		return nil
	}
	key := t.key(w.model)
	if w.have != nil && t.key(w.have.row) == key {
		return nil
	}
	rows, err := p.view.named(t, key)
	if err != nil {
		return err
	}
	for _, f := range rows {
		owner, id, ours := t.ownerOf(f.row)
		switch {
		case p.dead[f.uuid], ours && owner == p.owner:
			// this transaction deletes or renames it
		case ours:
			return fmt.Errorf("%s row %q of %s: %w: %q is row %q of %s (%s)",
				t.Name, w.row.ID, p.owner, nb.ErrConflict, key, id, owner, f.uuid)
		default:
			return fmt.Errorf("%s row %q of %s: %w: %q is row %s, which is not ours",
				t.Name, w.row.ID, p.owner, nb.ErrConflict, key, f.uuid)
		}
	}
	return nil
}

// detach finds the reference that keeps each row to be deleted alive.
func (p *plan) detach() {
	for _, d := range p.gone {
		if d.table.root {
			continue // deleted directly; the server removes weak references to it
		}
		parent := d.table.parentOf(d.row)
		d.parentRef = &reference{table: tableByName[parent.Table], column: d.table.Parents[parent.Table]}
		rows, err := p.view.named(d.parentRef.table, parent.Name)
		switch {
		case err != nil || len(rows) != 1: // found by the reference to the row instead
		case p.dead[rows[0].uuid]:
			d.parentRef = nil // deleted with its parent
		default:
			d.parentRef.uuid = rows[0].uuid
		}
	}
}
