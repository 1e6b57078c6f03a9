package ovsdb

import (
	"cmp"
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

// maxAttempts bounds how often one Apply starts over because the rows that it was diffed
// against changed before the commit.
const maxAttempts = 5

// maxInFlight is the maximum number of transactions in flight.
const maxInFlight = 2

// maxBatchWrites is how many writes of several owners may share a transaction; an owner
// with more gets its own. The limit is low enough that the server works on one transaction
// while the updates of the previous one are read. With a much lower limit the overhead
// would exceed that gain.
const maxBatchWrites = 500

// Writer implements nb.Writer. Its methods may be called from any goroutine.
type Writer struct {
	client   *Client
	requests chan []*request
	drift    *drift
	yields   *nb.Yields
	names    atomic.Uint64 // last row name used within a transaction
	raised   raised
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

// NewWriter returns the writer of a connection; there should be only one. It works until
// the client is closed.
func NewWriter(c *Client) *Writer {
	yields := nb.NewYields()
	w := &Writer{client: c, requests: make(chan []*request), drift: newDrift(yields, c.lastView), yields: yields}
	c.listen(listener{row: w.drift.row, session: w.drift.resync})
	go w.drift.run(c.ctx)
	go w.run()
	return w
}

// Apply implements nb.Writer. Without a connection it waits until ctx ends; if the
// connection breaks during an Apply, it continues with the next one. The rows must not be
// modified after the call. Errors wrap nb.ErrNoParent or nb.ErrConflict if these are the
// reason.
func (w *Writer) Apply(ctx context.Context, o nb.Owner, want []nb.Row) (nb.Stats, error) {
	stats, errs := w.ApplyAll(ctx, map[nb.Owner][]nb.Row{o: want})
	return stats, errs[o]
}

// ApplyAll is Apply for several owners at once. Their changes are sent in one transaction
// unless there are very many; then those of one object, such as a pod, stay together as far as possible. It returns the errors by owner; an owner that fails does not
// prevent the others from being written.
func (w *Writer) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	requests := make([]*request, 0, len(want))
	var yielding []*request // after the rows that they yield to
	for _, o := range slices.SortedFunc(maps.Keys(want), byObject) {
		rows := want[o]
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

// byObject orders owners by object, and those of an object by feature: the rows with which an EgressIP steers a pod come
// before the pod's port.
func byObject(a, b nb.Owner) int {
	return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Feature, b.Feature))
}

// answer waits for the outcome of a request, which may never have been accepted.
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

// whyNot returns why a context ended: usually because there is no connection.
func (w *Writer) whyNot(ctx context.Context) error {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	return errors.Join(ctx.Err(), w.client.lastErr)
}

// Owners implements nb.Writer. Without a connection it returns the owners at the time it
// broke; later changes are reported through OnDrift once the next one is established.
func (w *Writer) Owners(feature string) []nb.Owner {
	w.client.mu.Lock()
	last := w.client.last
	w.client.mu.Unlock()
	seen := map[nb.Owner]bool{}
	last.ownersOf(feature, func(o nb.Owner) { seen[o] = true })
	owners := make([]nb.Owner, 0, len(seen))
	for o := range seen {
		owners = append(owners, o)
	}
	slices.SortFunc(owners, func(a, b nb.Owner) int { return strings.Compare(a.Object, b.Object) })
	return owners
}

// Rows returns the rows of o as they are in the database, with only ID and Model set.
// Without a connection it returns the rows at the time it broke. The models
// include the owner's external_ids; they must not be modified.
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

// OnDrift registers a function that is called with the owner of rows that someone else
// changed, added or removed, whose Notify columns OVN changed, or that may have changed
// while there was no connection. f should enqueue the owner's key: its Apply repairs what
// differs and is a no-op otherwise. f must not block for long.
func (w *Writer) OnDrift(f func(nb.Owner)) { w.drift.subscribe(f) }

// Repaired returns how often rows of an owner were rewritten after someone else had
// changed, added or removed some of them.
func (w *Writer) Repaired() uint64 {
	w.drift.mu.Lock()
	defer w.drift.mu.Unlock()
	return w.drift.repaired
}

// Sizes returns how many rows each table has, including foreign ones. Without a connection
// it returns the numbers at the time it broke.
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

// txn is a transaction in flight, or the requests that came back from it.
type txn struct {
	requests []*request
	parts    []*part
	again    []*request // those that start over
}

// run commits requests. Requests that arrive while transactions are in flight are combined
// into the next one. Two transactions are in flight at a time, so that the server works on
// one while the other's updates are read. They never have an owner or a slot in common.
func (w *Writer) run() {
	finished := make(chan txn, maxInFlight)
	busy, slots := map[nb.Owner]bool{}, map[nb.Slot]bool{}
	var waiting []*request
	for inFlight := 0; ; {
		if inFlight < maxInFlight {
			var batch []*request
			if batch, waiting = w.nextBatch(waiting, busy); len(batch) > 0 {
				s, parts, included, later := w.prepare(batch, slots)
				waiting = append(later, waiting...)
				if len(parts) > 0 {
					inFlight++
					for _, r := range included {
						busy[r.owner] = true
					}
					go func() { finished <- txn{included, parts, w.send(s, included, parts)} }()
				}
				if len(later) < len(batch) {
					continue
				} // else all wait for the transactions in flight
			}
		}
		select {
		case r := <-w.requests:
			waiting = append(waiting, r...)
		case f := <-finished:
			inFlight--
			for i, r := range f.requests {
				delete(busy, r.owner)
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

// nextBatch picks the requests for the next transaction: of those waiting, here or still in
// Apply, the first of each owner that has none in flight.
func (w *Writer) nextBatch(waiting []*request, busy map[nb.Owner]bool) (batch, rest []*request) {
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
		// An owner has a second request only after an abandoned one; keep the order.
		if busy[r.owner] || taken[r.owner] {
			rest = append(rest, r)
			taken[r.owner] = true
			continue
		}
		taken[r.owner] = true
		batch = append(batch, r)
	}
	return batch, rest
}

// prepare waits for a session and diffs a batch against its cache. It answers the requests
// that need no transaction. It returns those that share the next transaction (included), and
// those that must wait because they do not fit into it or share slots with others (later).
// slots are those of the transactions in flight; prepare adds those of the new one.
func (w *Writer) prepare(batch []*request, slots map[nb.Slot]bool) (s *session, parts []*part, included, later []*request) {
	s, err := w.client.current(w.client.ctx)
	writes := 0
	for i, r := range batch {
		if writes >= maxBatchWrites {
			return s, parts, included, append(later, batch[i:]...)
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
			return s, parts, included, append(later, batch[i:]...)
		default:
			maps.Copy(slots, b.plan.slots)
			parts, included = append(parts, b), append(included, r)
			writes += b.size()
		}
	}
	return s, parts, included, later
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

// send commits parts in one transaction and answers their requests. It returns the requests
// that have to start over.
func (w *Writer) send(s *session, requests []*request, parts []*part) (again []*request) {
	for _, b := range parts {
		w.drift.expect(b)
	}
	t := newTransaction(parts)
	begin, end := time.Now(), w.raised.begin(s, t.increments)
	results, err := s.transact(w.client.cfg.TransactTimeout, t.ops)
	end(readCounter(results, err))
	w.observe(parts, time.Since(begin), err)
	switch {
	case errors.Is(err, errSession):
		return requests // the next session's cache shows the outcome
	case err != nil && len(parts) > 1:
		// The rows of one owner were rejected, and with them those of all.
		for _, r := range requests {
			again = append(again, w.sendAlone(s, r)...)
		}
		return again
	case err != nil:
		requests[0].finish(err)
		return nil
	}
	for i, b := range parts {
		r := requests[i]
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

// observe reports the result of a transaction for metrics.
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

// sendAlone diffs a request again, since other transactions were committed meanwhile, and
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
