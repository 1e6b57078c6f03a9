package nbfake

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// Writer is an nb.Writer that keeps its rows in memory.
type Writer struct {
	// AnyParent accepts rows whose parent does not exist: for tests of one feature whose
	// rows have parents that belong to another feature.
	AnyParent bool

	mu     sync.Mutex
	owners map[nb.Owner]map[key]entry
	yields *nb.Yields
	writes int
	stats  nb.Stats
	fail   func(nb.Owner) error
	drift  []func(nb.Owner)
	// reported are the statuses of BFD sessions by destination; restarted are the destinations of those that were begun again.
	reported  map[string]nbdb.BFDStatus
	restarted []string
}

var _ nb.Writer = (*Writer)(nil)

type key struct{ table, id string }

type entry struct {
	row  nb.Row
	text string
}

// New returns an empty writer that checks parents.
func New() *Writer {
	return &Writer{owners: map[nb.Owner]map[key]entry{}, yields: nb.NewYields(), reported: map[string]nbdb.BFDStatus{}}
}

// Restart forgets what the real writer keeps only in memory: wanted rows that are not in
// the database because they yield.
func (w *Writer) Restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.yields = nb.NewYields()
}

// Apply implements nb.Writer.
func (w *Writer) Apply(ctx context.Context, o nb.Owner, want []nb.Row) (nb.Stats, error) {
	if err := ctx.Err(); err != nil {
		return nb.Stats{}, fmt.Errorf("apply %s: %w", o, err)
	}
	stats, orphaned, drift, err := w.applyLocked(o, want)
	if err != nil {
		return nb.Stats{}, fmt.Errorf("apply %s: %w", o, err)
	}
	for _, other := range orphaned {
		for _, f := range drift {
			f(other)
		}
	}
	return stats, nil
}

// applyLocked is apply with the lock, which it releases even if a function of FailWith panics. It
// also returns the functions to call with the owners of orphaned rows.
func (w *Writer) applyLocked(o nb.Owner, want []nb.Row) (stats nb.Stats, orphaned []nb.Owner, drift []func(nb.Owner), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stats, orphaned, err = w.apply(o, want)
	return stats, orphaned, slices.Clone(w.drift), err
}

// ApplyAll applies several owners and counts one write, as the real writer does if they fit
// into one transaction. As there, owners with rows that yield are applied last.
func (w *Writer) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	var stats nb.Stats
	errs := map[nb.Owner]error{}
	before := w.Writes()
	var owners, yielding []nb.Owner
	for o, rows := range want {
		if slices.ContainsFunc(rows, func(r nb.Row) bool { return r.Yields }) {
			yielding = append(yielding, o)
		} else {
			owners = append(owners, o)
		}
	}
	for _, o := range append(owners, yielding...) {
		one, err := w.Apply(ctx, o, want[o])
		if err != nil {
			errs[o] = err
		}
		stats.Inserted += one.Inserted
		stats.Updated += one.Updated
		stats.Deleted += one.Deleted
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = min(w.writes, before+1)
	return stats, errs
}

func (w *Writer) apply(o nb.Owner, want []nb.Row) (stats nb.Stats, orphaned []nb.Owner, err error) {
	if w.fail != nil {
		if err := w.fail(o); err != nil {
			return stats, nil, err
		}
	}
	next := make(map[key]entry, len(want))
	w.yields.Set(o, want)
	for _, row := range want {
		if s, ok := nb.SlotOf(row.Parent, row.Model); ok && row.Yields && w.others(s, o) {
			continue
		}
		table := tableOf(row.Model)
		if table == "" {
			return stats, nil, fmt.Errorf("row %q: no table for a %T", row.ID, row.Model)
		}
		k := key{table, row.ID}
		if row.ID == "" || !hasOwner(row.Model) {
			k.id = nameOf(row.Model)
		}
		if _, ok := next[k]; ok {
			return stats, nil, fmt.Errorf("%s row %q is wanted twice", table, row.ID)
		}
		row.ID, row.Model = k.id, model.Clone(row.Model)
		next[k] = entry{row, nb.Text(table, row)}
	}
	gone := removed(w.owners[o], next)
	if err := w.check(o, next, gone); err != nil {
		return stats, nil, err
	}
	before := w.owners[o]
	stats = diff(before, next)
	if len(next) == 0 {
		delete(w.owners, o)
	} else {
		w.owners[o] = next
	}
	w.exchange(o, before, next, &stats)
	if !stats.Zero() {
		w.writes++
		w.stats.Inserted += stats.Inserted
		w.stats.Updated += stats.Updated
		w.stats.Deleted += stats.Deleted
		orphaned = w.collectGarbage(o, gone)
	}
	return stats, orphaned, nil
}

func diff(have, next map[key]entry) (stats nb.Stats) {
	for k, e := range next {
		old, ok := have[k]
		switch {
		case !ok:
			stats.Inserted++
		case old.row.Parent != e.row.Parent: // replaced, as by the real writer
			stats.Deleted++
			stats.Inserted++
		case old.text != e.text:
			stats.Updated++
		}
	}
	for k := range have {
		if _, ok := next[k]; !ok {
			stats.Deleted++
		}
	}
	return stats
}

// check returns an error if the parent or a reference of a row does not exist, if its name
// is taken, or if a row is removed that rows of other owners have strong references to.
func (w *Writer) check(o nb.Owner, next map[key]entry, gone map[nb.Parent]bool) error {
	taken := map[nb.Parent]bool{}
	for other, rows := range w.owners {
		if other == o {
			continue
		}
		for k, e := range rows {
			taken[nb.Parent{Table: k.table, Name: nameOf(e.row.Model)}] = true
			for _, r := range e.row.Refs {
				if p := (nb.Parent{Table: r.Table, Name: r.Name}); gone[p] && !w.AnyParent && strong(k.table, r.Column) {
					return fmt.Errorf("referential integrity violation: %s %q refers to %s %q", k.table, k.id, p.Table, p.Name)
				}
			}
		}
	}
	own := map[nb.Parent]bool{}
	for k, e := range next {
		own[nb.Parent{Table: k.table, Name: nameOf(e.row.Model)}] = true
	}
	missing := func(k key, p nb.Parent) error {
		if p == (nb.Parent{}) || taken[p] || own[p] || w.AnyParent {
			return nil
		}
		return fmt.Errorf("%s row %q: %s %q: %w", k.table, k.id, p.Table, p.Name, nb.ErrNoParent)
	}
	// In the order of the real writer: parents, names, references.
	for k, e := range next {
		if err := missing(k, e.row.Parent); err != nil {
			return err
		}
	}
	named := map[nb.Parent]bool{}
	for k, e := range next {
		n := nb.Parent{Table: k.table, Name: nameOf(e.row.Model)}
		if n.Name != "" && (taken[n] || named[n]) {
			return fmt.Errorf("%s row %q: %w: %q", k.table, k.id, nb.ErrConflict, n.Name)
		}
		named[n] = true
	}
	for k, e := range next {
		for _, r := range e.row.Refs {
			if err := missing(k, nb.Parent{Table: r.Table, Name: r.Name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// removed returns the rows that an Apply deletes or replaces with another of the same name.
func removed(have, next map[key]entry) map[nb.Parent]bool {
	gone := map[nb.Parent]bool{}
	for k, old := range have {
		if e, ok := next[k]; !ok || e.row.Parent != old.row.Parent {
			gone[nb.Parent{Table: k.table, Name: nameOf(old.row.Model)}] = true
		}
	}
	return gone
}

// collectGarbage removes the descendants of the rows that are gone and returns their
// owners. Rows of o, the owner that removed the parents, stay: o wants them under the row
// that has the name now.
func (w *Writer) collectGarbage(o nb.Owner, gone map[nb.Parent]bool) []nb.Owner {
	orphaned := map[nb.Owner]bool{}
	for len(gone) > 0 && !w.AnyParent {
		next := map[nb.Parent]bool{}
		for other, rows := range w.owners {
			for k, e := range rows {
				if other != o && gone[e.row.Parent] {
					delete(rows, k)
					next[nb.Parent{Table: k.table, Name: nameOf(e.row.Model)}] = true
					orphaned[other] = true
				}
			}
			if len(rows) == 0 {
				delete(w.owners, other)
			}
		}
		gone = next
	}
	return slices.SortedFunc(maps.Keys(orphaned), compareOwners)
}

func compareOwners(a, b nb.Owner) int { return strings.Compare(a.String(), b.String()) }

// Owners implements nb.Writer.
func (w *Writer) Owners(feature string) []nb.Owner {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []nb.Owner
	for o := range w.owners {
		if o.Feature == feature {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, compareOwners)
	return out
}

// OnDrift registers f like the real writer's OnDrift.
func (w *Writer) OnDrift(f func(nb.Owner)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drift = append(w.drift, f)
}

// Remove deletes a row without its owner, as a user of ovn-nbctl would. It reports whether
// the row existed.
func (w *Writer) Remove(o nb.Owner, table, id string) bool {
	w.mu.Lock()
	e, ok := w.owners[o][key{table, id}]
	if !ok {
		w.mu.Unlock()
		return false
	}
	delete(w.owners[o], key{table, id})
	affected := []nb.Owner{o}
	gone := map[nb.Parent]bool{{Table: table, Name: nameOf(e.row.Model)}: true}
	for _, other := range w.collectGarbage(nb.Owner{}, gone) {
		if other != o {
			affected = append(affected, other)
		}
	}
	drift := slices.Clone(w.drift)
	w.mu.Unlock()
	for _, other := range affected {
		for _, f := range drift {
			f(other)
		}
	}
	return true
}

// FailWith makes Apply return the error that f returns for an owner, unless that is nil. A
// nil f resets this.
func (w *Writer) FailWith(f func(nb.Owner) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = f
}

// Writes returns the number of transactions so far: calls of Apply that changed something.
func (w *Writer) Writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// Stats returns the totals of what all transactions wrote.
func (w *Writer) Stats() nb.Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Rows returns the rows of an owner, sorted by table and id. The models are
// copies.
func (w *Writer) Rows(o nb.Owner) []nb.Row {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(w.owners[o]), func(a, b key) int {
		return strings.Compare(a.table+"\x00"+a.id, b.table+"\x00"+b.id)
	})
	var out []nb.Row
	for _, k := range keys {
		row := w.owners[o][k].row
		row.Model = model.Clone(row.Model)
		if b, ok := row.Model.(*nbdb.BFD); ok {
			if status, ok := w.reported[b.DstIP]; ok {
				b.Status = &status
			}
		}
		out = append(out, row)
	}
	return out
}

// Dump renders all rows, one per line, sorted; columns with their zero value are left out,
// sets and maps are sorted. It is the text for golden files.
func (w *Writer) Dump() string { return w.dump(func(nb.Owner) bool { return true }) }

// DumpFeature is Dump for the rows of one feature.
func (w *Writer) DumpFeature(feature string) string {
	return w.dump(func(o nb.Owner) bool { return o.Feature == feature })
}

func (w *Writer) dump(include func(nb.Owner) bool) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for o, rows := range w.owners {
		if !include(o) {
			continue
		}
		for k, e := range rows {
			lines = append(lines, fmt.Sprintf("%s [%s %s]\n", e.text, o, k.id))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// types maps model types to tables.
var types = func() model.DatabaseModel {
	client, err := nbdb.FullDatabaseModel()
	if err != nil {
		panic(err)
	}
	m, errs := model.NewDatabaseModel(nbdb.Schema(), client)
	if len(errs) > 0 {
		panic(errs[0])
	}
	return m
}()

// strong reports whether a column holds strong references: the rows referred to cannot be
// deleted.
func strong(table, column string) bool {
	kind, err := types.Schema.Table(table).Column(column).TypeObj.Key.RefType()
	return err == nil && kind == ovsdb.Strong
}

func tableOf(m model.Model) string { return types.FindTable(reflect.TypeOf(m)) }
