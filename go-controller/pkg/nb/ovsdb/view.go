package ovsdb

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// view reads the cache of one session. The rows that it returns must not be modified: some are
// those of the cache, which replaces rows instead of changing them.
type view struct {
	cache   *cache.TableCache
	tables  *tableIndex
	members *memberships
}

func newView(rows *cache.TableCache, tables *tableIndex) view {
	return view{cache: rows, tables: tables, members: &memberships{byCell: map[cell]membership{}}}
}

// memberships remembers what rows hold, so that each of the thousands of owners whose rows are in
// one cell need not search it. It is for rows that the view does not copy.
type memberships struct {
	mu     sync.Mutex
	byCell map[cell]membership
}

// membership is what one row holds.
type membership struct {
	row model.Model
	set map[string]bool // nil until it is asked a second time: a row that changes each time is better searched
}

// holds reports whether a column of a row of t contains a reference to another row.
func (v view) holds(t *table, row model.Model, column, uuid string) bool {
	all := t.membersOf(row, column)
	if !t.Few {
		return slices.Contains(all, uuid)
	}
	at := cell{t.Name, t.uuidOf(row), column}
	v.members.mu.Lock()
	defer v.members.mu.Unlock()
	m := v.members.byCell[at]
	if m.row != row { // the row has changed, or is asked for the first time
		v.members.byCell[at] = membership{row: row}
		return slices.Contains(all, uuid)
	}
	if m.set == nil {
		m.set = make(map[string]bool, len(all))
		for _, member := range all {
			m.set[member] = true
		}
		v.members.byCell[at] = m
	}
	return m.set[uuid]
}

// tableIndex holds the tables in which each feature has, or once had, rows. It saves
// lookups in the cache, which are expensive, as a feature writes only few of the tables.
type tableIndex struct {
	mu        sync.RWMutex
	byFeature map[string]map[*table]bool
}

func newTableIndex() *tableIndex { return &tableIndex{byFeature: map[string]map[*table]bool{}} }

// add records that a feature has rows in a table.
func (h *tableIndex) add(feature string, t *table) {
	h.mu.RLock()
	known := h.byFeature[feature][t]
	h.mu.RUnlock()
	if known {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byFeature[feature] == nil {
		h.byFeature[feature] = map[*table]bool{}
	}
	h.byFeature[feature][t] = true
}

// of returns the tables that may have rows of a feature.
func (h *tableIndex) of(feature string) []*table {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make([]*table, 0, len(h.byFeature[feature]))
	for _, t := range tables {
		if h.byFeature[feature][t] {
			out = append(out, t)
		}
	}
	return out
}

// found is a row of the cache.
type found struct {
	uuid string
	id   string // row ID; owned rows only
	row  model.Model
}

// owned returns the rows of o in table t, sorted by UUID.
func (v view) owned(t *table, o nb.Owner) ([]found, error) {
	var rows map[string]model.Model
	if t.Identity != nil {
		rows = v.cache.Table(t.Name).RowsShallow()
	} else {
		var err error
		rows, err = v.cache.Table(t.Name).RowsByModels([]model.Model{t.probeOwner(o)})
		if err != nil {
			return nil, fmt.Errorf("look up rows of %s in %s: %w", o, t.Name, err)
		}
	}
	var out []found
	for uuid, m := range rows {
		if owner, id, ok := t.ownerOf(m); ok && owner == o {
			out = append(out, found{uuid: uuid, id: id, row: m})
		}
	}
	slices.SortFunc(out, func(a, b found) int { return strings.Compare(a.uuid, b.uuid) })
	return out, nil
}

// inSlot returns our rows in a slot, by owner.
func (v view) inSlot(s nb.Slot) (map[nb.Owner]found, error) {
	probe := &nbdb.NAT{LogicalIP: s.Source, ExternalIDs: map[string]string{objectKey: noSuch}}
	rows, err := v.cache.Table(nbdb.NATTable).RowsByModels([]model.Model{probe})
	if err != nil {
		return nil, fmt.Errorf("look up translations of %s: %w", s.Source, err)
	}
	t, out := tableByName[nbdb.NATTable], map[nb.Owner]found{}
	for uuid, m := range rows {
		o, id, ours := t.ownerOf(m)
		if at, ok := nb.SlotOf(t.parentOf(m), m); ours && ok && at == s {
			out[o] = found{uuid: uuid, id: id, row: m}
		}
	}
	return out, nil
}

// named returns the rows of t with a key: more than one only if the schema does not enforce
// uniqueness.
func (v view) named(t *table, key string) ([]found, error) {
	var rows map[string]model.Model
	if t.Few {
		rows = v.cache.Table(t.Name).RowsShallow()
	} else {
		var err error
		rows, err = v.cache.Table(t.Name).RowsByModels([]model.Model{t.probeKey(key)})
		if err != nil {
			return nil, fmt.Errorf("look up %s %q: %w", t.Name, key, err)
		}
	}
	var out []found
	for uuid, m := range rows {
		if t.key(m) == key {
			out = append(out, found{uuid: uuid, row: m})
		}
	}
	slices.SortFunc(out, func(a, b found) int { return strings.Compare(a.uuid, b.uuid) })
	return out, nil
}

// owners calls f for the owner of every owned row.
func (v view) owners(f func(nb.Owner)) {
	v.ownedRows(func(_ *table, o nb.Owner) { f(o) })
}

// ownersOf calls f for the owner of every row of a feature. It reads only the tables of the feature.
func (v view) ownersOf(feature string, f func(nb.Owner)) {
	v.ownedRowsIn(v.tables.of(feature), func(_ *table, o nb.Owner) {
		if o.Feature == feature {
			f(o)
		}
	})
}

func (v view) ownedRows(f func(*table, nb.Owner)) { v.ownedRowsIn(tables, f) }

func (v view) ownedRowsIn(some []*table, f func(*table, nb.Owner)) {
	for _, t := range some {
		for _, m := range v.cache.Table(t.Name).RowsShallow() {
			if o, _, ok := t.ownerOf(m); ok {
				f(t, o)
			}
		}
	}
}

func (v view) has(t *table, uuid string) bool { return v.cache.Table(t.Name).HasRow(uuid) }

// missing returns the rows of t that exist and are in before but not in now. It is fast if what remains is in the same order, and
// others are deleted.
func (v view) missing(t *table, before, now []string) (out []string) {
	i := 0
	for _, uuid := range before {
		if i < len(now) && now[i] == uuid {
			i++
		} else if v.has(t, uuid) {
			out = append(out, uuid)
		}
	}
	if len(out) == 0 {
		return nil
	}
	kept := make(map[string]bool, len(now))
	for _, uuid := range now {
		kept[uuid] = true
	}
	return slices.DeleteFunc(out, func(uuid string) bool { return kept[uuid] })
}
