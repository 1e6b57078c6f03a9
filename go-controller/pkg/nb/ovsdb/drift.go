package ovsdb

import (
	"context"
	"slices"
	"sync"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// deleted stands for the absence of a row among the digests of its states.
const deleted uint64 = 0

// rowID identifies an owned row even if it is deleted and created again.
type rowID struct {
	table string
	owner nb.Owner
	id    string
}

// drift distinguishes changes made by others from the writer's own. It keeps digests of the
// rows written by this process, not the rows: an event that shows a row exactly as it was
// written is the echo of our own transaction.
type drift struct {
	mu sync.Mutex
	// written holds the states of a row, oldest first: the last state whose event was
	// received, and those whose events are still outstanding.
	written map[rowID][]uint64
	removed map[string]bool // UUIDs of rows we deleted, until their event is received
	known   map[nb.Owner]bool
	// foreign are owners whose rows others changed, until the rows are rewritten or found
	// to be as wanted; repaired counts the former.
	foreign  map[nb.Owner]bool
	repaired uint64
	yields   *nb.Yields
	funcs    []func(nb.Owner)
	dirty    map[nb.Owner]bool
	wake     chan struct{}
	last     func() view // the latest session's
}

func newDrift(yields *nb.Yields, last func() view) *drift {
	return &drift{
		yields: yields, last: last,
		written: map[rowID][]uint64{}, removed: map[string]bool{}, known: map[nb.Owner]bool{},
		foreign: map[nb.Owner]bool{}, dirty: map[nb.Owner]bool{}, wake: make(chan struct{}, 1),
	}
}

func (d *drift) subscribe(f func(nb.Owner)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.funcs = append(d.funcs, f)
}

// expect records what a plan is about to write. It is called before the transaction is
// sent, since events may arrive before the reply. If the transaction fails, the records do
// no harm: the owner's key is retried.
func (d *drift) expect(b *part) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := map[rowID][]uint64{}
	for _, g := range b.plan.gone {
		d.removed[g.uuid] = true
		o, _, _ := g.table.ownerOf(g.row)
		if id := (rowID{g.table.Name, o, g.id}); d.written[id] != nil {
			next[id] = append(next[id], deleted)
		}
	}
	for _, w := range b.changed {
		id := rowID{w.table.Name, w.owner, w.row.ID}
		next[id] = append(next[id], w.table.digest(structOf(w.model), w.ids))
	}
	for id, states := range next {
		if before := d.written[id]; !hasSuffix(before, states) { // a retry of what the server has refused
			d.written[id] = append(before, states...)
		}
	}
}

func hasSuffix(states, suffix []uint64) bool {
	n := len(states) - len(suffix)
	return n >= 0 && slices.Equal(states[n:], suffix)
}

// update records that the rows of an owner are as wanted. hasRows tells whether it has any,
// which resync needs, and written whether a transaction was needed.
func (d *drift) update(o nb.Owner, hasRows, written bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.foreign[o] && written {
		d.repaired++
	}
	delete(d.foreign, o)
	if hasRows {
		d.known[o] = true
	} else {
		delete(d.known, o)
	}
}

// row handles an event of the cache.
func (d *drift) row(t *table, old, row model.Model) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var now rowID
	if row != nil {
		if o, id, ok := t.ownerOf(row); ok {
			now = rowID{t.Name, o, id}
			if !d.echo(now, t.digest(structOf(row), t.idsOf(row))) {
				d.markForeign(o)
				delete(d.written, now) // the row is not as it was written
			}
			if t.notifies(old, row) {
				d.markDirty(o)
			}
		}
	}
	if old == nil {
		return
	}
	d.lost(t, old, row)
	o, id, ok := t.ownerOf(old)
	before := rowID{t.Name, o, id}
	if !ok || before == now {
		return
	}
	if uuid := t.uuidOf(old); row == nil && d.removed[uuid] {
		delete(d.removed, uuid)
		if d.echo(before, deleted) && len(d.written[before]) == 1 {
			delete(d.written, before)
		}
		return
	}
	d.markForeign(o)
	if s, ok := nb.SlotOf(t.parentOf(old), old); ok {
		for _, other := range d.yields.In(s) { // the row that they yielded to may be gone
			d.markDirty(other)
		}
	}
}

// lost marks the owners of rows of root tables that a parent has lost, as when the parent is deleted: these rows remain, unchanged.
func (d *drift) lost(t *table, old, row model.Model) {
	if len(t.members) == 0 {
		return
	}
	v := d.last()
	if v.cache == nil {
		return // the first session, which has not begun: resync reports everything
	}
	for _, child := range tables {
		column := child.Parents[t.Name]
		if column == "" || !child.root {
			continue
		}
		var now []string
		if row != nil {
			now = t.membersOf(row, column)
		}
		for _, uuid := range v.missing(child, t.membersOf(old, column), now) {
			m := v.cache.Table(child.Name).Row(uuid)
			if m == nil || d.removed[uuid] { // we have deleted it, and the cache may show that a moment later
				continue
			}
			if o, _, ok := child.ownerOf(m); ok && child.parentOf(m) == (nb.Parent{Table: t.Name, Name: t.key(old)}) {
				if row == nil && d.removed[t.uuidOf(old)] {
					d.markDirty(o)
				} else {
					d.markForeign(o)
				}
			}
		}
	}
}

// markForeign records that rows of an owner were changed by someone else.
func (d *drift) markForeign(o nb.Owner) {
	d.foreign[o] = true
	d.markDirty(o)
}

// echo reports whether a state of a row is one that we wrote, and forgets earlier ones.
func (d *drift) echo(id rowID, state uint64) bool {
	i := slices.Index(d.written[id], state)
	if i > 0 {
		d.written[id] = slices.Delete(d.written[id], 0, i)
	}
	return i >= 0
}

// resync marks all past and present owners dirty: a new session shows the current rows, but
// not what happened in between.
func (d *drift) resync(v view) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.removed)
	for o := range d.known {
		d.markDirty(o)
	}
	v.owners(d.markDirty)
}

func (d *drift) markDirty(o nb.Owner) {
	d.dirty[o] = true
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run calls the subscribers, outside the lock and the cache's event loop.
func (d *drift) run(ctx context.Context) {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
		d.mu.Lock()
		funcs, dirty := slices.Clone(d.funcs), d.dirty
		d.dirty = map[nb.Owner]bool{}
		d.mu.Unlock()
		for o := range dirty {
			for _, f := range funcs {
				_ = panics.Catch("northbound", func() error { f(o); return nil })
			}
		}
	}
}
