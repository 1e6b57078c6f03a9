package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/rpc2"
	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
	"github.com/ovn-org/libovsdb/ovsdb/serverdb"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// errSession means that the session ended. The outcome of a transaction in progress is then
// unknown until the next session's cache shows it.
var errSession = errors.New("connection to the northbound database was lost")

// session is one connection to one server, from dialling to its end. Its cache
// is complete when openSession returns.
type session struct {
	endpoint string
	data     client.Client
	view     view

	// fence is the first operation of each transaction; nil without a Fence.
	fence *ovsdb.Operation

	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	clients []client.Client // open ones
}

// openSession connects to an endpoint, makes sure that it is the leader of its cluster, and
// fills the cache. events receives the events of the cache from then on; homes gets the
// tables in which features have rows by then.
func openSession(ctx context.Context, endpoint string, cfg Config, homes *tableIndex, events cache.EventHandler) (_ *session, err error) {
	tlsConfig, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	s := &session{endpoint: endpoint}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			s.end(err)
		}
	}()
	connectCtx, cancel := context.WithTimeout(ctx, 2*cfg.ProbeInterval)
	defer cancel()
	if err = s.watchLeader(connectCtx, tlsConfig); err != nil {
		return nil, err
	}
	dbModel, err := databaseModel()
	if err != nil {
		return nil, err
	}
	if s.data, err = s.dial(connectCtx, dbModel, tlsConfig); err != nil {
		return nil, err
	}
	go s.endWith(s.data)
	if err = s.claim(ctx, cfg); err != nil {
		return nil, err
	}
	s.view = view{s.data.Cache(), homes}
	if s.view.cache == nil {
		return nil, errSession
	}
	s.view.cache.AddEventHandler(events)
	m := s.data.NewMonitor()
	// Not the "since" variant: a session starts with an empty cache, and only with this one
	// does the library report errors of the cache.
	m.Method = ovsdb.ConditionalMonitorRPC
	for _, t := range tables {
		m.Tables = append(m.Tables, client.TableMonitor{Table: t.Name, Fields: t.monitored()})
	}
	m.Tables = append(m.Tables, globalMonitor)
	if _, err = s.data.Monitor(ctx, m); err != nil {
		return nil, fmt.Errorf("monitor %s: %w", endpoint, err)
	}
	if s.ctx.Err() != nil {
		return nil, context.Cause(s.ctx)
	}
	s.view.ownedRows(func(t *table, o nb.Owner) { homes.add(o.Feature, t) })
	go s.probe(cfg.ProbeInterval)
	return s, nil
}

// dial connects a client of the library that does not reconnect by itself.
func dial(ctx context.Context, m model.ClientDBModel, endpoint string, tlsConfig *tls.Config) (client.Client, error) {
	logger := klog.Background().V(4)
	c, err := client.NewOVSDBClient(m, client.WithEndpoint(endpoint), client.WithTLSConfig(tlsConfig), client.WithLogger(&logger))
	if err != nil {
		return nil, fmt.Errorf("set up client for %s: %w", endpoint, err)
	}
	if err := c.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return c, nil
}

// Dial connects once to the first endpoint of cfg that answers, for databases other than
// the northbound one. The client, for model m, does not reconnect by itself and monitors
// nothing yet.
func Dial(ctx context.Context, m model.ClientDBModel, cfg Config) (client.Client, error) {
	endpoints, err := ParseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, endpoint := range endpoints {
		c, err := dial(ctx, m, endpoint, tlsConfig)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// watchLeader returns an error if the server is not the leader of its cluster, and ends the
// session when it no longer is. A follower would work too, but slower, and one cut off from
// its cluster would show stale rows.
func (s *session) watchLeader(ctx context.Context, tlsConfig *tls.Config) error {
	m, err := serverdb.FullDatabaseModel()
	if err != nil {
		return err
	}
	watch, err := s.dial(ctx, m, tlsConfig)
	if err != nil {
		return err
	}
	check := func(row model.Model) error {
		db, ok := row.(*serverdb.Database)
		if !ok || db.Name != databaseName || db.Model != serverdb.DatabaseModelClustered {
			return nil
		}
		if !db.Leader || !db.Connected {
			return fmt.Errorf("%s does not lead its cluster", s.endpoint)
		}
		return nil
	}
	dbs := watch.Cache()
	if dbs == nil {
		return errSession
	}
	dbs.AddEventHandler(&cache.EventHandlerFuncs{UpdateFunc: func(_ string, _, row model.Model) {
		if err := check(row); err != nil {
			s.end(err)
		}
	}})
	monitor := watch.NewMonitor()
	monitor.Method = ovsdb.ConditionalMonitorRPC // the only one that the server's own database supports
	monitor.Tables = []client.TableMonitor{{Table: serverdb.DatabaseTable, Fields: []string{"name", "model", "leader", "connected"}}}
	if _, err := watch.Monitor(ctx, monitor); err != nil {
		return fmt.Errorf("monitor leadership of %s: %w", s.endpoint, err)
	}
	clustered := false
	for _, row := range dbs.Table(serverdb.DatabaseTable).RowsShallow() {
		if err := check(row); err != nil {
			return err
		}
		db := row.(*serverdb.Database)
		clustered = clustered || db.Name == databaseName && db.Model == serverdb.DatabaseModelClustered
	}
	if !clustered { // no leader to watch
		s.disconnect(watch)
		return nil
	}
	go s.endWith(watch)
	return nil
}

// endWith ends the session when a client loses its connection.
func (s *session) endWith(c client.Client) {
	select {
	case <-c.DisconnectNotify():
		s.end(errSession)
	case <-s.ctx.Done():
	}
}

// probe ends the session when the server does not answer in time.
func (s *session) probe(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		answered := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(s.ctx, interval)
			defer cancel()
			answered <- s.data.Echo(ctx)
		}()
		// The call may block on a full socket, where its context does not interrupt it.
		select {
		case <-s.ctx.Done():
			return
		case err := <-answered:
			if err != nil {
				s.end(fmt.Errorf("probe %s: %w", s.endpoint, err))
			}
		case <-time.After(2 * interval):
			s.end(fmt.Errorf("probe %s: no answer", s.endpoint))
		}
	}
}

// dial connects a client that lives as long as the session.
func (s *session) dial(ctx context.Context, m model.ClientDBModel, tlsConfig *tls.Config) (client.Client, error) {
	c, err := dial(ctx, m, s.endpoint, tlsConfig)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil { // ended meanwhile: nothing else would close it
		go c.Close()
		return nil, context.Cause(s.ctx)
	}
	s.clients = append(s.clients, c)
	return c, nil
}

// disconnect closes a client that is no longer needed.
func (s *session) disconnect(c client.Client) {
	s.mu.Lock()
	s.clients = slices.DeleteFunc(s.clients, func(other client.Client) bool { return other == c })
	s.mu.Unlock()
	c.Close()
}

// end ends the session. It does not wait for the connections to close, which a hanging
// server can delay.
func (s *session) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(cause)
	for _, c := range s.clients {
		go c.Close()
	}
	s.clients = nil
}

// transact sends one transaction. After errSession its outcome is unknown.
func (s *session) transact(timeout time.Duration, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	type outcome struct {
		results []ovsdb.OperationResult
		err     error
	}
	done := make(chan outcome, 1)
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	sent := ops
	if s.fence != nil {
		sent = slices.Concat([]ovsdb.Operation{*s.fence}, ops)
	}
	go func() {
		results, err := s.data.Transact(ctx, sent...)
		done <- outcome{results, err}
	}()
	select {
	case <-ctx.Done():
		err := fmt.Errorf("%w: %w", errSession, context.Cause(ctx))
		s.end(err) // nothing may be diffed before the outcome of this is known
		return nil, err
	case o := <-done:
		var refused rpc2.ServerError
		if errors.As(o.err, &refused) {
			return nil, fmt.Errorf("transaction refused: %w", refused)
		}
		if o.err != nil { // an error of the connection, which has many forms
			err := fmt.Errorf("%w: %w", errSession, o.err)
			s.end(err)
			return nil, err
		}
		if s.fence != nil && len(o.results) > 0 {
			if o.results[0].Error != "" {
				err := fmt.Errorf("%w: %w", errSession, errFenced)
				s.end(err) // the next session decides whether to claim the database again
				return nil, err
			}
			o.results = o.results[1:]
		}
		if _, err := ovsdb.CheckOperationResults(o.results, ops); err != nil {
			return nil, refusal(o.results, ops, err)
		}
		return o.results, nil
	}
}

// refusal returns an error with the server's reason for rejecting a transaction.
func refusal(results []ovsdb.OperationResult, ops []ovsdb.Operation, err error) error {
	for i, r := range results {
		if r.Error == "" {
			continue
		}
		if i < len(ops) {
			return fmt.Errorf("%s on %s refused: %s: %s", ops[i].Op, ops[i].Table, r.Error, r.Details)
		}
		return fmt.Errorf("transaction refused: %s: %s", r.Error, r.Details)
	}
	return err
}
