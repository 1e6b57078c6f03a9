package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb/serverdb"
)

const (
	// patience is how long the other servers get once one has answered that it cannot be used. A
	// server that hangs would take until its timeout.
	patience = time.Second
	// electionTimeout is how long the answer to a probe may take after another server was elected
	// leader: most likely because this one hangs, or its node was lost.
	electionTimeout = time.Second
	// electionBackoff is the delay before a server is watched for elections again.
	electionBackoff = 2 * time.Second
)

// target is a database on one or more servers.
type target struct {
	endpoints     []string
	database      string // name of its schema
	tlsConfig     *tls.Config
	probeInterval time.Duration
	// accept returns an error if the server cannot be used. It is called for each change in what
	// the server of a clustered database says about it.
	accept func(endpoint string, db *serverdb.Database) error
}

// connect connects to all servers at once and returns the first connection that is accepted. It
// has no client for the database itself yet.
func (t *target) connect(ctx context.Context) (*connection, error) {
	type result struct {
		*connection
		err error
	}
	results, returned := make(chan result), make(chan struct{})
	defer close(returned)
	attempts := &sync.WaitGroup{}
	for _, endpoint := range t.endpoints {
		attempts.Go(func() {
			c, err := t.try(ctx, endpoint)
			if err == nil {
				c.attempts = attempts
			}
			select {
			case results <- result{c, err}:
			case <-returned: // another one was faster
				if err == nil {
					c.end(errLost)
				}
			}
		})
	}
	var errs []error
	var enough <-chan time.Time
	for range t.endpoints {
		select {
		case r := <-results:
			if r.err == nil {
				return r.connection, nil
			}
			errs = append(errs, r.err)
			if enough == nil {
				enough = time.After(patience)
			}
		case <-enough:
			return nil, errors.Join(errs...)
		case <-ctx.Done():
			return nil, errors.Join(append(errs, ctx.Err())...)
		}
	}
	return nil, errors.Join(errs...)
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
	if _, err = c.watchServer(ctx, t.database, t.tlsConfig, func(db *serverdb.Database) error { return t.accept(endpoint, db) }); err != nil {
		return nil, err
	}
	return c, nil
}

// watchElections probes the server of a connection, with one of its clients, when another server
// is elected leader, until the connection ends.
func (t *target) watchElections(c *connection, one client.Client, other string) {
	for {
		if elections, err := t.watchElection(c, one, other); err == nil {
			select {
			case <-elections.ctx.Done():
			case <-c.ctx.Done():
				elections.end(errLost)
			}
		}
		select {
		case <-c.ctx.Done():
			return
		case <-time.After(electionBackoff):
		}
	}
}

func (t *target) watchElection(c *connection, one client.Client, other string) (_ *connection, err error) {
	elections := newConnection(other)
	defer func() {
		if err != nil {
			elections.end(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 2*t.probeInterval)
	defer cancel()
	watch, err := elections.watchServer(ctx, t.database, t.tlsConfig, func(db *serverdb.Database) error {
		if db.Leader {
			go c.demandAnswer(one, min(electionTimeout, t.probeInterval))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if watch == nil {
		return nil, fmt.Errorf("%s is not in a cluster", other)
	}
	go elections.probe(watch, t.probeInterval)
	return elections, nil
}

// open adds the client for the database, which must have model m, and watches the other servers.
func (t *target) open(ctx context.Context, c *connection, m model.ClientDBModel) (client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*t.probeInterval)
	defer cancel()
	data, err := c.dial(ctx, m, t.tlsConfig)
	if err != nil || !c.clustered {
		return data, err
	}
	for _, other := range t.endpoints {
		if other != c.endpoint {
			go t.watchElections(c, data, other)
		}
	}
	return data, nil
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
	t, err := cfg.target(m.Name(), func(endpoint string, db *serverdb.Database) error {
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
	data, err := t.open(ctx, c, m)
	if err != nil {
		c.end(err)
		return nil, err
	}
	go c.probe(data, t.probeInterval)
	return &Connection{data, c}, nil
}

// Lost is closed when the connection has ended.
func (c *Connection) Lost() <-chan struct{} { return c.connection.ctx.Done() }

// Close ends the connection.
func (c *Connection) Close() { c.connection.end(errLost) }
