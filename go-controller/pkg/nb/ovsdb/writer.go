package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// maxAttempts bounds how often one Apply starts over because the rows it was
// diffed against changed before its commit.
const maxAttempts = 5

// maxInFlight is how many transactions are under way at a time.
const maxInFlight = 2

// maxBatchRows is how many wanted rows may share a transaction; an owner that
// wants more goes alone.
const maxBatchRows = 2000

// Writer implements nb.Writer. Its methods may be called from any goroutine.
type Writer struct {
	client   *Client
	requests chan *request
	drift    *drift
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
	w := &Writer{client: c, requests: make(chan *request), drift: newDrift()}
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
	r := &request{ctx: ctx, owner: o, want: want, done: make(chan outcome, 1)}
	select {
	case w.requests <- r:
	case <-ctx.Done():
		return nb.Stats{}, fmt.Errorf("apply %s: %w", o, w.whyNot(ctx))
	case <-w.client.ctx.Done():
		return nb.Stats{}, fmt.Errorf("apply %s: %w", o, errClosed)
	}
	select {
	case out := <-r.done:
		if out.err != nil {
			return out.stats, fmt.Errorf("apply %s: %w", o, out.err)
		}
		return out.stats, nil
	case <-ctx.Done():
		return nb.Stats{}, fmt.Errorf("apply %s: %w", o, w.whyNot(ctx))
	case <-w.client.ctx.Done():
		return nb.Stats{}, fmt.Errorf("apply %s: %w", o, errClosed)
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
	for _, t := range tables {
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
// somebody else changed, added or removed, or which may have changed while
// there was no connection. The owner's key is to be enqueued: its Apply puts
// right what differs and is a no-op otherwise. f must not block for long.
func (w *Writer) OnDrift(f func(nb.Owner)) { w.drift.subscribe(f) }

// flight is a transaction under way, or the requests that came back from it.
type flight struct {
	asked []*request
	again []*request // of asked, to start over
}

// run commits what is asked for. What is asked for while transactions are under
// way goes together into the next one. Two are under way at a time, so that the
// server works on one while the other's updates are read; an owner is never in
// both.
func (w *Writer) run() {
	landed := make(chan flight, maxInFlight)
	airborne := map[nb.Owner]bool{}
	var waiting []*request
	for flying := 0; ; {
		if flying < maxInFlight {
			var batch []*request
			if batch, waiting = w.board(waiting, airborne); len(batch) > 0 {
				s, parts, asked := w.prepare(batch)
				if len(parts) > 0 {
					flying++
					for _, r := range asked {
						airborne[r.owner] = true
					}
					go func() { landed <- flight{asked, w.send(s, asked, parts)} }()
				}
				continue
			}
		}
		select {
		case r := <-w.requests:
			waiting = append(waiting, r)
		case f := <-landed:
			flying--
			for _, r := range f.asked {
				delete(airborne, r.owner)
			}
			waiting = append(f.again, waiting...)
		case <-w.client.ctx.Done():
			return
		}
	}
}

// board picks the requests for the next transaction: of those that wait, here
// or still in Apply, the first of each owner that is not airborne.
func (w *Writer) board(waiting []*request, airborne map[nb.Owner]bool) (batch, rest []*request) {
	for more := true; more; {
		select {
		case r := <-w.requests:
			waiting = append(waiting, r)
		default:
			more = false
		}
	}
	rows, taken := 0, map[nb.Owner]bool{}
	for _, r := range waiting {
		// An owner has a second request only after an abandoned one: in order.
		if airborne[r.owner] || taken[r.owner] || rows > 0 && rows+len(r.want) > maxBatchRows {
			rest = append(rest, r)
			taken[r.owner] = true
			continue
		}
		taken[r.owner] = true
		batch = append(batch, r)
		rows += len(r.want)
	}
	return batch, rest
}

// prepare diffs a batch against the cache of the session it waits for. It
// answers the requests that need no transaction and returns the others.
func (w *Writer) prepare(batch []*request) (s *session, parts []*part, asked []*request) {
	s, err := w.client.current(w.client.ctx)
	for _, r := range batch {
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
		case b.empty():
			klog.V(4).InfoS("Northbound rows are as wanted", "owner", r.owner, "rows", len(r.want))
			w.drift.settle(r.owner, len(r.want) > 0)
			r.finish(nil)
		default:
			parts, asked = append(parts, b), append(asked, r)
		}
	}
	return s, parts, asked
}

func (w *Writer) plan(v view, r *request) (*part, error) {
	p, err := newPlan(v, r.owner, r.want, w.newName)
	if err != nil {
		return nil, err
	}
	return build(p, r.attempts > 0), nil
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
	results, err := s.transact(w.client.cfg.TransactTimeout, operations(parts))
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
	for i, results := range split(parts, results) {
		r, b := asked[i], parts[i]
		r.stats = add(r.stats, b.stats)
		if err := b.verify(s.view, results); err != nil {
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
		w.drift.settle(r.owner, len(r.want) > 0)
		r.finish(nil)
	}
	return again
}

// sendAlone diffs a request anew, after other transactions went before it, and
// commits it by itself.
func (w *Writer) sendAlone(s *session, r *request) (again []*request) {
	b, err := w.plan(s.view, r)
	if err != nil || b.empty() {
		r.finish(err)
		return nil
	}
	return w.send(s, []*request{r}, []*part{b})
}

func (r *request) finish(err error) { r.done <- outcome{r.stats, err} }

func add(a, b nb.Stats) nb.Stats {
	return nb.Stats{Inserted: a.Inserted + b.Inserted, Updated: a.Updated + b.Updated, Deleted: a.Deleted + b.Deleted}
}
