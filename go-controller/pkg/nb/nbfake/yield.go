package nbfake

import (
	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// others reports whether any owner other than o has a row in a slot.
func (w *Writer) others(s nb.Slot, o nb.Owner) bool {
	for other, rows := range w.owners {
		if other != o && slots(rows)[s] != (key{}) {
			return true
		}
	}
	return false
}

// slots returns the slots that rows occupy.
func slots(rows map[key]entry) map[nb.Slot]key {
	out := map[nb.Slot]key{}
	for k, e := range rows {
		if s, ok := nb.SlotOf(e.row.Parent, e.row.Model); ok {
			out[s] = k
		}
	}
	return out
}

// exchange removes the yielding rows of others from the slots that o has now, and puts one
// back into each slot that o has given up.
func (w *Writer) exchange(o nb.Owner, before, now map[key]entry, stats *nb.Stats) {
	taken := slots(now)
	for s, k := range taken {
		for _, other := range w.yields.In(s) {
			if at, ok := slots(w.owners[other])[s]; ok && other != o && !now[k].row.Yields {
				if delete(w.owners[other], at); len(w.owners[other]) == 0 {
					delete(w.owners, other)
				}
				stats.Deleted++
			}
		}
	}
	for s := range slots(before) {
		for _, other := range w.yields.In(s) {
			if _, ok := taken[s]; ok || other == o || w.others(s, o) {
				continue
			}
			row := w.yields.Row(s, other)
			row.Model = model.Clone(row.Model)
			if w.owners[other] == nil {
				w.owners[other] = map[key]entry{}
			}
			table := tableOf(row.Model)
			w.owners[other][key{table, row.ID}] = entry{row, nb.Text(table, row)}
			stats.Inserted++
		}
	}
}
