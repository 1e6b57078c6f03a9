package ovs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/replica"
	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	connectTimeout = 5 * time.Second
	retryPause     = 250 * time.Millisecond
)

// DB is the Client of a real Open vSwitch database.
type DB struct {
	endpoint string

	mu               sync.Mutex // guards the fields below, never held over I/O
	session          *session   // nil if there is no connection
	changed          chan struct{}
	onReconnect      []func()
	onInterface      []func(string)
	onFlowsInstalled []func()
	onSystem         []func()
	written          written
}

// session is one connection with its replica of the database. A new connection gets a new session,
// so that nobody reads a replica that is only partly filled.
type session struct {
	client client.Client
	cache  *cache.TableCache
	// abandoned counts transactions whose caller no longer waits for the answer: they may still be
	// carried out. settled is how many of them are known to have ended.
	abandoned, settled atomic.Uint64
}

var _ Client = (*DB)(nil)

// New returns a DB that connects to endpoint, e.g. DefaultEndpoint, and reconnects whenever the
// connection is lost, until ctx ends. It does not wait for the first connection: the methods do.
func New(ctx context.Context, endpoint string) *DB {
	db := &DB{endpoint: endpoint, changed: make(chan struct{})}
	go db.run(ctx)
	return db
}

// run keeps one session alive until ctx ends.
func (db *DB) run(ctx context.Context) {
	logged := false
	var gone waits.Lost
	defer gone.Set(waits.Wait{}, nil)
	wait := waits.Wait{Part: "Open vSwitch", For: "a connection to " + db.endpoint, Reason: waits.ReasonDatabase}
	gone.Set(wait, errors.New("not connected yet"))
	for first := true; ctx.Err() == nil; {
		s, lost, err := db.connect(ctx)
		if err != nil {
			gone.Set(wait, err)
			if !logged {
				klog.InfoS("Cannot reach the Open vSwitch database, will retry", "endpoint", db.endpoint, "reason", err.Error())
				logged = true
			}
			pause(ctx, retryPause)
			continue
		}
		logged = false
		gone.Set(wait, nil)
		klog.V(2).InfoS("Connected to the Open vSwitch database", "endpoint", db.endpoint)
		db.publish(s)
		if !first {
			for _, f := range db.reconnectCalls() {
				go f()
			}
		}
		first = false
		select {
		case <-lost:
			klog.InfoS("Lost the Open vSwitch database", "endpoint", db.endpoint)
		case <-ctx.Done():
		}
		gone.Set(wait, errors.New("lost"))
		db.publish(nil)
		s.client.Close()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// connect opens one connection and fills its replica. lost is closed when the connection is lost, or the replica
// is no longer complete.
func (db *DB) connect(ctx context.Context) (*session, <-chan struct{}, error) {
	schema, err := vswitchd.FullDatabaseModel()
	if err != nil {
		return nil, nil, fmt.Errorf("load the vswitchd models: %w", err)
	}
	broken := make(chan error, 1)
	guard := replica.NewGuard(func(err error) {
		select {
		case broken <- err:
		default:
		}
	})
	logger := guard.Logger(logr.Discard())
	c, err := client.NewOVSDBClient(schema, client.WithEndpoint(db.endpoint), client.WithLogger(&logger))
	if err != nil {
		return nil, nil, fmt.Errorf("make a client of %s: %w", db.endpoint, err)
	}
	// The client reports a loss only to those who listen at that moment.
	lost := make(chan struct{})
	quit := make(chan struct{})
	go func() {
		select {
		case <-c.DisconnectNotify():
			close(lost)
		case err := <-broken:
			klog.ErrorS(err, "Will connect to the Open vSwitch database again", "endpoint", db.endpoint)
			close(lost)
		case <-quit:
		case <-ctx.Done():
		}
	}()
	fail := func(err error) (*session, <-chan struct{}, error) {
		close(quit)
		c.Close()
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := c.Connect(limited); err != nil {
		return fail(fmt.Errorf("connect to %s: %w", db.endpoint, err))
	}
	s := &session{client: c, cache: c.Cache()}
	if s.cache == nil {
		return fail(fmt.Errorf("connect to %s: %w", db.endpoint, client.ErrNotConnected))
	}
	s.cache.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(table string, m model.Model) { db.event(table, nil, m) },
		UpdateFunc: func(table string, old, m model.Model) { db.event(table, old, m) },
		DeleteFunc: func(table string, m model.Model) { db.event(table, m, nil) },
	})
	if _, err := c.Monitor(limited, c.NewMonitor(tables()...)); err != nil {
		return fail(fmt.Errorf("monitor %s: %w", db.endpoint, err))
	}
	guard.Filled()
	return s, lost, nil
}

// tables returns the columns that are read. The statistics columns, which change every few seconds
// for every port, are left out.
func tables() []client.MonitorOption {
	var (
		sys    vswitchd.OpenvSwitch
		bridge vswitchd.Bridge
		port   vswitchd.Port
		iface  vswitchd.Interface
		ssl    vswitchd.SSL
		path   vswitchd.Datapath
		qos    vswitchd.QoS
	)
	return []client.MonitorOption{
		client.WithTable(&sys, &sys.Bridges, &sys.ExternalIDs, &sys.OtherConfig, &sys.NextCfg, &sys.CurCfg, &sys.SSL),
		client.WithTable(&bridge, &bridge.Name, &bridge.DatapathType, &bridge.FailMode,
			&bridge.OtherConfig, &bridge.ExternalIDs, &bridge.Ports),
		client.WithTable(&port, &port.Name, &port.Interfaces, &port.ExternalIDs, &port.Tag, &port.Trunks, &port.QOS),
		client.WithTable(&iface, &iface.Name, &iface.Type, &iface.MAC, &iface.MTURequest,
			&iface.Options, &iface.ExternalIDs, &iface.Ofport, &iface.Error),
		client.WithTable(&path, &path.Capabilities),
		client.WithTable(&qos, &qos.Type),
		client.WithTable(&ssl, &ssl.PrivateKey, &ssl.Certificate, &ssl.CaCert, &ssl.ExternalIDs),
	}
}

// event handles a change of the replica.
func (db *DB) event(table string, old, new model.Model) {
	db.mu.Lock()
	close(db.changed)
	db.changed = make(chan struct{})
	calls, flowsInstalled, onSystem := db.onInterface, db.onFlowsInstalled, db.onSystem
	system, undone := db.written.undone(old, new)
	db.mu.Unlock()
	if system {
		for _, f := range onSystem {
			f()
		}
	}
	if undone != "" {
		for _, f := range calls {
			f(undone)
		}
	}
	switch table {
	case vswitchd.InterfaceTable:
	case vswitchd.BridgeTable:
		before, _ := old.(*vswitchd.Bridge)
		if now, _ := new.(*vswitchd.Bridge); before != nil && now != nil && before.ExternalIDs[nbCfg] != now.ExternalIDs[nbCfg] {
			for _, f := range flowsInstalled {
				f()
			}
		}
		return
	default:
		return
	}
	row, _ := new.(*vswitchd.Interface)
	if row == nil {
		row, _ = old.(*vswitchd.Interface)
	}
	if row == nil {
		return
	}
	for _, f := range calls {
		f(row.Name)
	}
}

// publish makes s the current session; nil: there is none.
func (db *DB) publish(s *session) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.session = s
	close(db.changed)
	db.changed = make(chan struct{})
}

func (db *DB) reconnectCalls() []func() {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.onReconnect
}

// OnReconnect implements Client.
func (db *DB) OnReconnect(f func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.onReconnect = append(db.onReconnect[:len(db.onReconnect):len(db.onReconnect)], f)
}

// OnInterface implements Client.
func (db *DB) OnInterface(f func(string)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.onInterface = append(db.onInterface[:len(db.onInterface):len(db.onInterface)], f)
}

// OnSystem implements Client.
func (db *DB) OnSystem(f func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.onSystem = append(db.onSystem[:len(db.onSystem):len(db.onSystem)], f)
}

// OnFlowsInstalled implements Client.
func (db *DB) OnFlowsInstalled(f func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.onFlowsInstalled = append(db.onFlowsInstalled[:len(db.onFlowsInstalled):len(db.onFlowsInstalled)], f)
}

// current returns the session, or nil if there is none, and a channel that is closed at the next
// change of the session or of anything in its replica.
func (db *DB) current() (*session, <-chan struct{}) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.session, db.changed
}

// connected waits for a session whose replica shows everything written before.
func (db *DB) connected(ctx context.Context) (*session, error) {
	for {
		s, changed := db.current()
		if s != nil {
			err := s.settle(ctx)
			if err == nil {
				return s, s.pinned(ctx)
			}
			if !errors.Is(err, client.ErrNotConnected) {
				return nil, fmt.Errorf("wait for the transactions before: %w", err)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the Open vSwitch database at %s: %w", db.endpoint, ctx.Err())
		}
	}
}

// until waits until done returns true. Otherwise done returns the reason why not yet; it is called
// again after each change.
func (db *DB) until(ctx context.Context, what string, done func(*session) (bool, error)) error {
	for {
		s, changed := db.current()
		reason := errors.New("no connection to the database")
		if s != nil {
			if err := s.pinned(ctx); err != nil {
				return fmt.Errorf("wait for %s: %w", what, err)
			}
			var ok bool
			if ok, reason = done(s); ok {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w)", what, ctx.Err(), reason)
		}
	}
}

// update runs one transaction that plan makes from the replica. Without operations there is no
// transaction. If the connection is lost, the plan is made again with the next session, which is
// safe because plans are idempotent.
func (db *DB) update(ctx context.Context, what string, plan func(*session) ([]ovsdb.Operation, error)) error {
	for {
		s, err := db.connected(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		ops, err := plan(s)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if len(ops) == 0 {
			klog.V(4).InfoS("Open vSwitch is up to date", "step", what)
			return nil
		}
		err = s.transact(ctx, ops)
		switch {
		case err == nil:
			klog.V(2).InfoS("Changed the Open vSwitch database", "step", what, "operations", len(ops))
			return nil
		case errors.Is(err, client.ErrNotConnected) && ctx.Err() == nil:
			pause(ctx, retryPause)
		default:
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// transact runs one transaction. If ctx ends before the answer, it is unknown whether the
// transaction was carried out: settle waits until it has ended.
func (s *session) transact(ctx context.Context, ops []ovsdb.Operation) error {
	results, err := s.client.Transact(ctx, ops...)
	if err != nil {
		if ctx.Err() != nil {
			s.abandoned.Add(1)
		}
		return err
	}
	if failed, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		return fmt.Errorf("%w: %+v", err, failed)
	}
	return nil
}

// settle waits for abandoned transactions. The server carries them out in the order of their
// requests, and sends the changes of each one before its answer, so when a transaction that does
// nothing is answered, the replica shows the changes of all earlier ones.
func (s *session) settle(ctx context.Context) error {
	abandoned := s.abandoned.Load()
	if settled := s.settled.Load(); settled < abandoned {
		nothing := "wait for what was requested before"
		if _, err := s.client.Transact(ctx, ovsdb.Operation{Op: ovsdb.OperationComment, Comment: &nothing}); err != nil {
			return err
		}
		s.settled.CompareAndSwap(settled, abandoned) // unless another call has seen more
	}
	return nil
}
