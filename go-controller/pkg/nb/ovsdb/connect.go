package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb/serverdb"
)

const (
	// retryDelay is the delay before a server that refused is tried again while others have not
	// answered yet.
	retryDelay = 250 * time.Millisecond
	// electionTimeout is how long the answer to a probe may take once another server leads: most
	// likely because this one hangs, or its node was lost.
	electionTimeout = time.Second
	// electionDelay is the delay before a server is watched for elections again.
	electionDelay = 2 * time.Second
)

// target is a database on one or more servers.
type target struct {
	endpoints     []string
	model         model.ClientDBModel
	tlsConfig     *tls.Config
	probeInterval time.Duration
	// accept returns an error if the server cannot be used. It is called for each change in what
	// the server of a clustered database says about it.
	accept func(endpoint string, db *serverdb.Database) error
}

// connect connects to all servers at once and returns the first connection that is accepted. It
// fails when all servers have failed. Until then those that answered are tried again: with a hanging
// leader, one of them will be the next.
func (t *target) connect(ctx context.Context) (*connection, error) {
	type result struct {
		endpoint string
		*connection
		err error
	}
	results, returned := make(chan result), make(chan struct{})
	defer close(returned)
	attempts := &sync.WaitGroup{}
	start := func(endpoint string, delay time.Duration) {
		attempts.Go(func() {
			select {
			case <-time.After(delay):
			case <-returned:
				return
			}
			c, err := t.try(ctx, endpoint)
			if err == nil {
				c.attempts = attempts
			}
			select {
			case results <- result{endpoint, c, err}:
			case <-returned: // another one was faster
				if err == nil {
					c.end(errLost)
				}
			}
		})
	}
	for _, endpoint := range t.endpoints {
		start(endpoint, 0)
	}
	failed := map[string]error{}
	for {
		select {
		case r := <-results:
			if r.err == nil {
				t.watchOthers(r.connection)
				return r.connection, nil
			}
			if failed[r.endpoint] = r.err; len(failed) == len(t.endpoints) {
				return nil, errors.Join(slices.Collect(maps.Values(failed))...)
			}
			start(r.endpoint, retryDelay)
		case <-ctx.Done():
			return nil, errors.Join(append(slices.Collect(maps.Values(failed)), ctx.Err())...)
		}
	}
}

// try connects to one server, and watches its state until the connection ends.
func (t *target) try(ctx context.Context, endpoint string) (_ *connection, err error) {
	c := newConnection(endpoint)
	defer func() {
		if err != nil {
			c.end(err)
		}
	}()
	// Not interrupted when another server is faster: the library reads the answer to an interrupted
	// call while it may be arriving.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*t.probeInterval)
	defer cancel()
	if err = c.watchServer(ctx, t.model.Name(), t.tlsConfig, func(db *serverdb.Database) error { return t.accept(endpoint, db) }); err != nil {
		return nil, err
	}
	if c.data, err = c.dial(ctx, t.model, t.tlsConfig); err != nil {
		return nil, err
	}
	return c, nil
}

// watchOthers watches the other members of the cluster, if the database has one.
func (t *target) watchOthers(c *connection) {
	if !c.clustered {
		return
	}
	for _, other := range t.endpoints {
		if other != c.endpoint {
			go t.watchElections(c, other)
		}
	}
}

// watchElections probes the server of a connection when another server is seen to lead, until the
// connection ends.
func (t *target) watchElections(c *connection, other string) {
	for {
		if elections, err := t.watchElection(c, other); err == nil {
			select {
			case <-elections.ctx.Done():
			case <-c.ctx.Done():
				elections.end(errLost)
			}
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(electionDelay):
		}
	}
}

func (t *target) watchElection(c *connection, other string) (_ *connection, err error) {
	elections := newConnection(other)
	defer func() {
		if err != nil {
			elections.end(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 2*t.probeInterval)
	defer cancel()
	err = elections.watchServer(ctx, t.model.Name(), t.tlsConfig, func(db *serverdb.Database) error {
		if db.Leader {
			go c.demandAnswer(min(electionTimeout, t.probeInterval))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if elections.watch == nil {
		return nil, fmt.Errorf("%s is not in a cluster", other)
	}
	go elections.probe(t.probeInterval)
	return elections, nil
}

// Connection is a client of a database other than the northbound one, from Dial to the loss of its
// server.
type Connection struct {
	client.Client
	connection *connection
}

// Dial connects to the endpoints of cfg and returns the first connection to a server that answers
// and, if the database is clustered, is connected to its cluster. The connection, for model m, ends
// when either is no longer so; it is not restored. The client monitors nothing yet.
func Dial(ctx context.Context, m model.ClientDBModel, cfg Config) (_ *Connection, err error) {
	t, err := cfg.target(m, func(endpoint string, db *serverdb.Database) error {
		if !db.Connected {
			return fmt.Errorf("%s is not connected to its cluster", endpoint)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c, err := t.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", cfg.Address, err)
	}
	go c.probe(t.probeInterval)
	return &Connection{c.data, c}, nil
}

// Lost is closed when the connection has ended.
func (c *Connection) Lost() <-chan struct{} { return c.connection.ctx.Done() }

// Close ends the connection.
func (c *Connection) Close() { c.connection.end(errLost) }
