package sb

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"k8s.io/klog/v2"

	nbovsdb "github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// tablePrivate is the table in which ovn-controllers record their progress.
const tablePrivate = "Chassis_Private"

// pace is the minimum time between two increments of nb_cfg, each of which makes every ovn-controller write to the
// database: requests within that time share one.
const pace = 10 * time.Millisecond

// private is a row of Chassis_Private: the progress of an ovn-controller.
type private struct {
	UUID string `ovsdb:"_uuid"`
	Name string `ovsdb:"name"`
	Done int    `ovsdb:"nb_cfg"`
}

// Counter is nb_cfg of the northbound database. beyond is the highest value that a chassis has reported.
type Counter interface {
	// Bump returns a value that covers everything written before. It raises nb_cfg unless the last transaction has.
	Bump(ctx context.Context, beyond int) (int, error)
	// Incremented returns a value that covers all rows written before of the kinds whose transactions raise nb_cfg
	// themselves; ok is false if none is known.
	Incremented(beyond int) (value int, ok bool)
	// Count returns the present value.
	Count(ctx context.Context) (int, error)
}

// Barrier tells when an ovn-controller has applied what was written to the northbound database. Each chassis is
// waited for separately: a dead one delays nobody else. It is safe for concurrent use; Run has to be running.
type Barrier struct {
	southbound nbovsdb.Config
	counter    Counter

	requested chan struct{} // holds one value while somebody waits for a raise
	confirmed chan struct{} // closed when the initial progress of the chassis is known
	first     sync.Once     // closes confirmed

	mu       sync.Mutex
	rows     tableRows           // of the connection from which progress is
	progress map[string]*reached // by chassis
	next     *raise              // the raise for new requests

	lost waits.Lost // the connection
}

// reached is the progress of an ovn-controller.
type reached struct {
	row     string // its UUID
	done    int
	changed chan struct{} // closed and replaced when done changes
}

// raise is an increment of nb_cfg that callers wait for.
type raise struct {
	sent chan struct{} // closed when target is known
	// target is the value of nb_cfg.
	target int
}

// NewBarrier returns a barrier.
func NewBarrier(southbound nbovsdb.Config, counter Counter) *Barrier {
	return &Barrier{
		southbound: southbound,
		counter:    counter,
		requested:  make(chan struct{}, 1),
		confirmed:  make(chan struct{}),
		progress:   map[string]*reached{},
		next:       &raise{sent: make(chan struct{})},
	}
}

// Wait returns nil when the ovn-controller of a chassis has applied what was written to the northbound database
// before the call.
func (b *Barrier) Wait(ctx context.Context, chassis string) error { return b.Written()(ctx, chassis) }

// Written returns a function that waits until the ovn-controller of a chassis has applied what was written to the
// northbound database before the call of Written. It may be called for several chassis, and again after its ctx has ended:
// changes that take longer to apply than one call waits are found by a later one.
func (b *Barrier) Written() func(ctx context.Context, chassis string) error {
	return b.after(b.request())
}

// Counted is like Written, but only for rows of the kinds whose transactions raise nb_cfg themselves: waiting for them
// does not make ovn-northd and all chassis report once more.
func (b *Barrier) Counted() func(ctx context.Context, chassis string) error {
	value, ok := b.counter.Incremented(b.farthest())
	if !ok {
		return b.Written()
	}
	r := &raise{sent: make(chan struct{}), target: value}
	close(r.sent)
	return b.after(r)
}

// after returns a function that waits until a chassis has reached the target of first.
func (b *Barrier) after(first *raise) func(ctx context.Context, chassis string) error {
	return func(ctx context.Context, chassis string) error {
		later := first
		if done, _ := b.of(chassis); !first.reached(done) && first.isSent() {
			// No chassis reaches the target if the databases were replaced by empty ones. Another request
			// in any case would take one more pass of ovn-northd, which may be what takes so long.
			if count, err := b.counter.Count(ctx); err == nil && count < first.target {
				later = b.request()
			}
		}
		for {
			done, changed := b.of(chassis)
			if first.reached(done) || later.reached(done) {
				return nil
			}
			var sent <-chan struct{}
			if !later.isSent() {
				sent = later.sent
			}
			select {
			case <-sent:
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("wait for chassis %s, which is at %d%s: %w", chassis, done, later, ctx.Err())
			}
		}
	}
}

// request has nb_cfg raised.
func (b *Barrier) request() *raise {
	b.mu.Lock()
	r := b.next
	b.mu.Unlock()
	select {
	case b.requested <- struct{}{}:
	default:
	}
	return r
}

// isSent reports whether target is known.
func (r *raise) isSent() bool {
	select {
	case <-r.sent:
		return true
	default:
		return false
	}
}

// reached reports whether a chassis that is done with a value of nb_cfg has reached the target.
func (r *raise) reached(done int) bool { return r.isSent() && done >= r.target }

// String is for the end of a message.
func (r *raise) String() string {
	if !r.isSent() {
		return ""
	}
	return fmt.Sprintf(" of %d", r.target)
}

// Run runs until ctx is done, and handles restarts of the databases.
func (b *Barrier) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Add(1)
	go func() {
		defer watching.Done()
		b.watch(ctx)
	}()
	defer watching.Wait()
	select {
	case <-b.confirmed:
	case <-ctx.Done():
		return nil
	}
	for {
		select {
		case <-b.requested:
		case <-ctx.Done():
			return nil
		}
		b.raise(ctx)
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return nil
		}
	}
}

// raise raises nb_cfg for all current waiters.
func (b *Barrier) raise(ctx context.Context) {
	b.mu.Lock()
	r := b.next
	b.next = &raise{sent: make(chan struct{})}
	b.mu.Unlock()
	for ctx.Err() == nil {
		target, err := b.counter.Bump(ctx, b.farthest())
		if err == nil {
			r.target = target
			close(r.sent)
			return
		}
		if ctx.Err() == nil {
			klog.ErrorS(err, "Cannot raise nb_cfg, will retry")
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
	}
}

// farthest returns the highest value of nb_cfg that any chassis has confirmed. The next value must be higher,
// whatever value the northbound database has.
func (b *Barrier) farthest() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 0
	for _, p := range b.progress {
		most = max(most, p.done)
	}
	return most
}

// watch keeps the progress up to date.
func (b *Barrier) watch(ctx context.Context) {
	reconnect(ctx, &b.lost, waitFor("barrier", b.southbound), "Cannot watch the progress of the chassis, will retry", b.session)
}

// reconnect runs sessions, each of which handles one connection and ends with it, until ctx is done. lost gets the wait for a
// connection, message is logged with the error that ended a session.
func reconnect(ctx context.Context, lost *waits.Lost, wait waits.Wait, message string, session func(context.Context) error) {
	defer lost.Set(wait, nil)
	lost.Set(wait, errNotYet)
	for ctx.Err() == nil {
		err := session(ctx)
		lost.Set(wait, err)
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, message)
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
	}
}

// tableRows are the rows of one table in the copy that a connection keeps. Events of an earlier connection may still arrive.
type tableRows interface {
	Row(uuid string) model.Model
	RowsShallow() map[string]model.Model
}

// session handles one connection.
func (b *Barrier) session(ctx context.Context) error {
	m, err := model.NewClientDBModel(database, map[string]model.Model{tablePrivate: &private{}})
	if err != nil {
		return fmt.Errorf("describe %s: %w", tablePrivate, err)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := nbovsdb.Dial(limited, m, b.southbound)
	if err != nil {
		return err
	}
	defer c.Close()
	lost := c.Lost()
	rows := c.Cache()
	if rows == nil {
		return fmt.Errorf("lost the connection to %s", b.southbound.Address)
	}
	of := rows.Table(tablePrivate)
	look := func(m model.Model) {
		if row, ok := m.(*private); ok {
			b.note(of, row)
		}
	}
	rows.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, m model.Model) { look(m) },
		UpdateFunc: func(_ string, _, m model.Model) { look(m) },
		DeleteFunc: func(_ string, m model.Model) { look(m) },
	})
	row := &private{}
	if _, err := c.Monitor(limited, c.NewMonitor(client.WithTable(row, &row.Name, &row.Done))); err != nil {
		return fmt.Errorf("monitor %s: %w", tablePrivate, err)
	}
	b.fill(of)
	b.lost.Set(waits.Wait{}, nil)
	b.first.Do(func() { close(b.confirmed) })
	select {
	case <-lost:
		return fmt.Errorf("lost the connection to %s", b.southbound.Address)
	case <-ctx.Done():
		return nil
	}
}

// of returns the progress of a chassis, and a channel that is closed when that changes.
func (b *Barrier) of(chassis string) (int, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.entry(chassis)
	return p.done, p.changed
}

func (b *Barrier) entry(chassis string) *reached {
	p := b.progress[chassis]
	if p == nil {
		p = &reached{changed: make(chan struct{})}
		b.progress[chassis] = p
	}
	return p
}

// fill applies all rows of a new connection. They are read while no event can be applied, or an older state could
// replace that of an event.
func (b *Barrier) fill(of tableRows) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = of
	for _, m := range of.RowsShallow() {
		if row, ok := m.(*private); ok {
			b.entry(row.Name).set(row.UUID, row.Done)
		}
	}
}

// note applies an event. The content of an event may be older than what is known by then, so it only says which row to read. A
// chassis that registered again has another row, of which the library may have told before the deletion of the former one.
func (b *Barrier) note(of tableRows, was *private) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows != of {
		return
	}
	p := b.entry(was.Name)
	if now, ok := of.Row(was.UUID).(*private); ok {
		p.set(now.UUID, now.Done)
	} else if p.row == was.UUID {
		p.set("", 0)
	}
}

func (r *reached) set(row string, done int) {
	r.row, r.done = row, done
	close(r.changed)
	r.changed = make(chan struct{})
}
