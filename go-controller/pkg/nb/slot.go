package nb

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// Slot is a source address that a router translates (SNAT). If several rows translate it,
// OVN may apply any of them.
type Slot struct{ Router, Source string }

// SlotOf returns the slot of a row; false for rows that do not translate source addresses.
func SlotOf(parent Parent, m model.Model) (Slot, bool) {
	nat, ok := m.(*nbdb.NAT)
	if !ok || nat.Type != nbdb.NATTypeSNAT {
		return Slot{}, false
	}
	return Slot{parent.Name, nat.LogicalIP}, true
}

// Yields holds all wanted rows that yield, whether or not they are in the database now.
type Yields struct {
	mu   sync.Mutex
	rows map[Slot]map[Owner]Row
	of   map[Owner][]Slot
}

// NewYields returns an empty set.
func NewYields() *Yields { return &Yields{rows: map[Slot]map[Owner]Row{}, of: map[Owner][]Slot{}} }

// Set replaces the rows of an owner with those of want that yield.
func (y *Yields) Set(o Owner, want []Row) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, s := range y.of[o] {
		if delete(y.rows[s], o); len(y.rows[s]) == 0 {
			delete(y.rows, s)
		}
	}
	delete(y.of, o)
	for _, row := range want {
		s, ok := SlotOf(row.Parent, row.Model)
		if !ok || !row.Yields {
			continue
		}
		if y.rows[s] == nil {
			y.rows[s] = map[Owner]Row{}
		}
		y.rows[s][o] = row
		y.of[o] = append(y.of[o], s)
	}
}

// In returns the owners that have a row for a slot, sorted by name.
func (y *Yields) In(s Slot) []Owner {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.SortedFunc(maps.Keys(y.rows[s]), func(a, b Owner) int { return strings.Compare(a.String(), b.String()) })
}

// Row returns the row that an owner has for a slot.
func (y *Yields) Row(s Slot, o Owner) Row {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.rows[s][o]
}
