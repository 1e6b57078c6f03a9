package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// maxAttempts bounds how often one Apply starts over because the rows it was
// diffed against changed before its commit.
const maxAttempts = 5

// maxInFlight is how many transactions are under way at a time.
const maxInFlight = 2

// maxBatchWrites is how many writes of several owners may share a transaction; an
// owner that has more goes alone. With that few the server works on the next while
// the updates of the last are read; with many fewer it would have more work than
// that gains.
const maxBatchWrites = 500

// Writer implements nb.Writer. Its methods may be called from any goroutine.
type Writer struct {
	client   *Client
	requests chan []*request
	drift    *drift
	yields   *nb.Yields
	names    atomic.Uint64 // last row name given within a transaction
}

var _ nb.Writer = (*Writer)(nil)

// request is one call of Apply.
type request struct {
	ctx      context.Context
	owner    nb.Owner
	want     []nb.Row
	attempts int
	stats    nb.Stats
	done     chan outcome
}

type outcome struct {
	stats nb.Stats
	err   error
}

// NewWriter returns the writer of a connection; there should be one. It works
// until the client is closed.
func NewWriter(c *Client) *Writer {
	yields := nb.NewYields()
	w := &Writer{client: c, requests: make(chan []*request), drift: newDrift(yields), yields: yields}
	c.listen(listener{row: w.drift.row, session: w.drift.resync})
	go w.drift.run(c.ctx)
	go w.run()
	return w
}

// Apply implements nb.Writer. While there is no connection it waits, until ctx
// ends; an Apply during which the connection breaks goes on with the next one.
// The rows must not be modified after they were handed in. Errors wrap
// nb.ErrNoParent or nb.ErrConflict where these are the reason.
func (w *Writer) Apply(ctx context.Context, o nb.Owner, want []nb.Row) (nb.Stats, error) {
	stats, errs := w.ApplyAll(ctx, map[nb.Owner][]nb.Row{o: want})
	return stats, errs[o]
}

// ApplyAll is Apply for several owners at once, whose changes go into one
// transaction where they are not very many. It returns the errors by owner; one
// that fails does not keep the others from being written.
func (w *Writer) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	requests := make([]*request, 0, len(want))
	var yielding []*request // after what they yield to
	for o, rows := range want {
		r := &request{ctx: ctx, owner: o, want: rows, done: make(chan outcome, 1)}
		if slices.ContainsFunc(rows, func(row nb.Row) bool { return row.Yields }) {
			yielding = append(yielding, r)
		} else {
			requests = append(requests, r)
		}
	}
	requests = append(requests, yielding...)
	select {
	case w.requests <- requests:
	case <-ctx.Done():
	case <-w.client.ctx.Done():
	}
	var stats nb.Stats
	errs := map[nb.Owner]error{}
	for _, r := range requests {
		out := w.answer(r)
		stats = add(stats, out.stats)
		if out.err != nil {
			errs[r.owner] = fmt.Errorf("apply %s: %w", r.owner, out.err)
		}
	}
	return stats, errs
}

// answer waits for the outcome of a request, which may never have been taken.
func (w *Writer) answer(r *request) outcome {
	select {
	case out := <-r.done:
		return out
	default:
	}
	select {
	case out := <-r.done:
		return out
	case <-r.ctx.Done():
		return outcome{err: w.whyNot(r.ctx)}
	case <-w.client.ctx.Done():
		return outcome{err: errClosed}
	}
}

// whyNot explains a context that ended: most often there is no connection.
func (w *Writer) whyNot(ctx context.Context) error {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	return errors.Join(ctx.Err(), w.client.lastErr)
}

// Owners implements nb.Writer. Without a connection it tells what was there when
// it broke; whatever changed since comes through OnDrift when the next one stands.
func (w *Writer) Owners(feature string) []nb.Owner {
	w.client.mu.Lock()
	last := w.client.last
	w.client.mu.Unlock()
	seen := map[nb.Owner]bool{}
	last.owners(func(o nb.Owner) {
		if o.Feature == feature {
			seen[o] = true
		}
	})
	owners := make([]nb.Owner, 0, len(seen))
	for o := range seen {
		owners = append(owners, o)
	}
	slices.SortFunc(owners, func(a, b nb.Owner) int { return strings.Compare(a.Object, b.Object) })
	return owners
}

// Rows returns the rows of o as they are in the database, by ID and Model only.
// Without a connection they are those from when it broke. The models are copies
// and carry the owner's external_ids.
func (w *Writer) Rows(o nb.Owner) []nb.Row {
	w.client.mu.Lock()
	last := w.client.last
	w.client.mu.Unlock()
	var rows []nb.Row
	for _, t := range last.tables.of(o.Feature) {
		list, err := last.owned(t, o)
		if err != nil {
			klog.ErrorS(err, "Cannot read rows", "owner", o, "table", t.Name)
			continue
		}
		for _, f := range list {
			rows = append(rows, nb.Row{ID: f.id, Model: f.row})
		}
	}
	return rows
}

// OnDrift registers a function that is called with the owner of rows which
// somebody else changed, added or removed, or whose Told columns OVN has changed,
// or which may have changed while
// there was no connection. The owner's key is to be enqueued: its Apply puts
// right what differs and is a no-op otherwise. f must not block for long.
func (w *Writer) OnDrift(f func(nb.Owner)) { w.drift.subscribe(f) }

// Repaired counts how often rows of an owner were written after somebody else had changed,
// added or removed some of them.
func (w *Writer) Repaired() uint64 {
	w.drift.mu.Lock()
	defer w.drift.mu.Unlock()
	return w.drift.repaired
}

// Sizes returns how many rows each table has, of whatever owner. Without a connection it
// tells how many there were when it broke.
func (w *Writer) Sizes() map[string]int {
	w.client.mu.Lock()
	last := w.client.last
	w.client.mu.Unlock()
	sizes := make(map[string]int, len(tables))
	for _, t := range tables {
		sizes[t.Name] = last.cache.Table(t.Name).Len()
	}
	return sizes
}

// txn is a transaction under way, or the requests that came back from it.
type txn struct {
	asked []*request
	parts []*part
	again []*request // of asked, to start over
}

// run commits what is asked for. What is asked for while transactions are under
// way goes together into the next one. Two are under way at a time, so that the
// server works on one while the other's updates are read; an owner is never in
// both, and neither is a slot.
func (w *Writer) run() {
	landed := make(chan txn, maxInFlight)
	airborne, slots := map[nb.Owner]bool{}, map[nb.Slot]bool{}
	var waiting []*request
	for flying := 0; ; {
		if flying < maxInFlight {
			var batch []*request
			if batch, waiting = w.nextBatch(waiting, airborne); len(batch) > 0 {
				s, parts, asked, later := w.prepare(batch, slots)
				waiting = append(later, waiting...)
				if len(parts) > 0 {
					flying++
					for _, r := range asked {
						airborne[r.owner] = true
					}
					go func() { landed <- txn{asked, parts, w.send(s, asked, parts)} }()
				}
				if len(later) < len(batch) {
					continue
				} // else all wait for what is under way
			}
		}
		select {
		case r := <-w.requests:
			waiting = append(waiting, r...)
		case f := <-landed:
			flying--
			for i, r := range f.asked {
				delete(airborne, r.owner)
				for slot := range f.parts[i].plan.slots {
					delete(slots, slot)
				}
			}
			waiting = append(f.again, waiting...)
		case <-w.client.ctx.Done():
			return
		}
	}
}

// nextBatch picks the requests for the next transaction: of those that wait, here
// or still in Apply, the first of each owner that is not airborne.
func (w *Writer) nextBatch(waiting []*request, airborne map[nb.Owner]bool) (batch, rest []*request) {
	for more := true; more; {
		select {
		case r := <-w.requests:
			waiting = append(waiting, r...)
		default:
			more = false
		}
	}
	taken := map[nb.Owner]bool{}
	for _, r := range waiting {
		// An owner has a second request only after an abandoned one: in order.
		if airborne[r.owner] || taken[r.owner] {
			rest = append(rest, r)
			taken[r.owner] = true
			continue
		}
		taken[r.owner] = true
		batch = append(batch, r)
	}
	return batch, rest
}

// prepare diffs a batch against the cache of the session it waits for. It
// answers the requests that need no transaction and returns those that share one,
// and those that come later because they do not fit into it, or share slots with others.
// The slots are those of transactions under way; those of this one are added.
func (w *Writer) prepare(batch []*request, slots map[nb.Slot]bool) (s *session, parts []*part, asked, later []*request) {
	s, err := w.client.current(w.client.ctx)
	writes := 0
	for i, r := range batch {
		if writes >= maxBatchWrites {
			return s, parts, asked, append(later, batch[i:]...)
		}
		if err != nil {
			r.finish(err)
			continue
		}
		if r.ctx.Err() != nil {
			r.finish(r.ctx.Err())
			continue
		}
		b, err := w.plan(s.view, r)
		switch {
		case err != nil:
			r.finish(err)
		case b.plan.shares(slots):
			later = append(later, r)
		case b.size() == 0:
			klog.V(4).InfoS("Northbound rows are up to date", "owner", r.owner, "rows", len(r.want))
			w.drift.update(r.owner, len(r.want) > 0, false)
			r.finish(nil)
		case writes > 0 && writes+b.size() > maxBatchWrites:
			return s, parts, asked, append(later, batch[i:]...)
		default:
			maps.Copy(slots, b.plan.slots)
			parts, asked = append(parts, b), append(asked, r)
			writes += b.size()
		}
	}
	return s, parts, asked, later
}

func (w *Writer) plan(v view, r *request) (*part, error) {
	var b *part
	err := panics.Catch("northbound", func() error {
		w.yields.Set(r.owner, r.want)
		p, err := newPlan(v, r.owner, r.want, w.yields, w.newName)
		if err != nil {
			return err
		}
		b = build(p, r.attempts > 0)
		return nil
	})
	return b, err
}

// newName returns a name for a new row that is unique within any transaction.
func (w *Writer) newName() string {
	return fmt.Sprintf("r%d", w.names.Add(1))
}

// send commits parts in one transaction and answers their requests. It returns
// those that have to start over.
func (w *Writer) send(s *session, asked []*request, parts []*part) (again []*request) {
	for _, b := range parts {
		w.drift.expect(b)
	}
	t := newTransaction(parts)
	begin := time.Now()
	results, err := s.transact(w.client.cfg.TransactTimeout, t.ops)
	w.observe(parts, time.Since(begin), err)
	switch {
	case errors.Is(err, errSession):
		return asked // what it did shows in the next session's cache
	case err != nil && len(parts) > 1:
		// Somebody's rows were refused, and with them everybody's.
		for _, r := range asked {
			again = append(again, w.sendAlone(s, r)...)
		}
		return again
	case err != nil:
		asked[0].finish(err)
		return nil
	}
	for i, b := range parts {
		r := asked[i]
		r.stats = add(r.stats, b.stats)
		if err := t.verify(i, s.view, results); err != nil {
			if r.attempts++; r.attempts < maxAttempts {
				again = append(again, r)
				continue
			}
			r.finish(err)
			continue
		}
		klog.V(2).InfoS("Wrote northbound rows", "owner", r.owner, "inserted", b.stats.Inserted,
			"updated", b.stats.Updated, "deleted", b.stats.Deleted)
		b.log()
		w.drift.update(r.owner, len(r.want) > 0, true)
		r.finish(nil)
	}
	return again
}

// observe tells who measures how a transaction ended.
func (w *Writer) observe(parts []*part, took time.Duration, err error) {
	if w.client.cfg.Observe == nil {
		return
	}
	t := Transaction{Took: took, Err: err}
	for _, b := range parts {
		t.Stats = add(t.Stats, b.stats)
	}
	w.client.cfg.Observe(t)
}

// sendAlone diffs a request anew, after other transactions went before it, and
// commits it by itself.
func (w *Writer) sendAlone(s *session, r *request) (again []*request) {
	b, err := w.plan(s.view, r)
	if err != nil || b.size() == 0 {
		r.finish(err)
		return nil
	}
	return w.send(s, []*request{r}, []*part{b})
}

func (r *request) finish(err error) { r.done <- outcome{r.stats, err} }

func add(a, b nb.Stats) nb.Stats {
	return nb.Stats{Inserted: a.Inserted + b.Inserted, Updated: a.Updated + b.Updated, Deleted: a.Deleted + b.Deleted}
}
