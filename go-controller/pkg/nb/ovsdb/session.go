package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/rpc2"
	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/ovsdb"
	"github.com/ovn-org/libovsdb/ovsdb/serverdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// errSession means that the session ended. The outcome of a transaction in progress is then
// unknown until the next session's cache shows it.
var errSession = errors.New("connection to the northbound database was lost")

// session is one connection to one server, from dialling to its end. Its cache
// is complete when openSession returns.
type session struct {
	*connection
	view view

	// fence is the first operation of each transaction; nil without a Fence.
	fence *ovsdb.Operation
}

// errCopy means that a session ended before its cache was complete.
var errCopy = errors.New("copy the rows")

// openSession connects to the leader of the database's cluster and fills the cache. events receives
// the events of the cache from then on; homes gets the tables in which features have rows by then. Each copy of the rows takes a
// place in copies until the library has stopped to read it, which may be later than the end of the session.
func openSession(ctx context.Context, cfg Config, homes *tableIndex, events cache.EventHandler, copies chan struct{}) (_ *session, err error) {
	dbModel, err := databaseModel()
	if err != nil {
		return nil, err
	}
	// A follower would work too, but slower.
	t, err := cfg.target(dbModel, func(endpoint string, now state) error {
		if !now.Connected || now.Model == serverdb.DatabaseModelClustered && !now.Leader {
			return fmt.Errorf("%s does not lead its cluster", endpoint)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{connection: c}
	defer func() {
		if err != nil {
			s.end(err)
		}
	}()
	if err = s.claim(ctx, cfg); err != nil {
		return nil, err
	}
	s.view = newView(s.data.Cache(), homes)
	if s.view.cache == nil {
		return nil, errSession
	}
	s.view.cache.AddEventHandler(events)
	m := s.data.NewMonitor()
	// Not the "since" variant: a session starts with an empty cache.
	m.Method = ovsdb.ConditionalMonitorRPC
	for _, t := range tables {
		m.Tables = append(m.Tables, client.TableMonitor{Table: t.Name, Fields: t.monitored()})
	}
	m.Tables = append(m.Tables, globalMonitor)
	select {
	case copies <- struct{}{}:
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the end of earlier copies of the rows: %w", ctx.Err())
	}
	if _, err = s.monitor(ctx, m, func() { <-copies }); err != nil {
		return nil, fmt.Errorf("%w of %s: %w", errCopy, s.endpoint, err)
	}
	if s.ctx.Err() != nil {
		return nil, context.Cause(s.ctx)
	}
	s.view.ownedRows(func(t *table, o nb.Owner) { homes.add(o.Feature, t) })
	return s, nil
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
