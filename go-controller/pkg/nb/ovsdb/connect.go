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
	"k8s.io/klog/v2"
)

const (
	// retryInterval is how often servers that failed are tried again while others have not answered yet.
	retryInterval = 250 * time.Millisecond
	// electionTimeout is how long the answer to a probe may take once another server leads in place of
	// this one: most likely because this one hangs, or its node was lost.
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
	// accept returns an error if the server cannot be used. It is called for each state of a
	// database that is not standalone.
	accept func(endpoint string, now state) error
}

// connect connects to all servers at once and returns the first connection that is accepted. It
// fails when all servers have failed. Until then those that answered are tried again: with a hanging
// leader, one of them will be the next.
func (t *target) connect(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		endpoint string
		*connection
		err error
	}
	results, attempts := make(chan result), &sync.WaitGroup{}
	start := func(endpoint string) {
		attempts.Go(func() {
			c, err := t.try(ctx, endpoint)
			if err == nil {
				c.attempts = attempts
			}
			select {
			case results <- result{endpoint, c, err}:
			case <-ctx.Done(): // another one was faster
				if err == nil {
					c.end(errLost)
				}
			}
		})
	}
	for _, endpoint := range t.endpoints {
		start(endpoint)
	}
	failed := map[string]error{}
	var again []string
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	besides := time.NewTicker(2 * t.probeInterval)
	defer besides.Stop()
	for {
		select {
		case r := <-results:
			if r.err == nil {
				go r.probe(t.probeInterval, func() error { return t.alive(r.connection) })
				t.watchOthers(r.connection)
				return r.connection, nil
			}
			if failed[r.endpoint] = r.err; len(failed) == len(t.endpoints) {
				return nil, errors.Join(slices.Collect(maps.Values(failed))...)
			}
			again = append(again, r.endpoint)
		case <-retry.C:
			for _, endpoint := range again {
				start(endpoint)
			}
			again = nil
		case <-besides.C:
			if t.only() { // the attempt may be lost, or the server busy
				start(t.endpoints[0])
			}
		case <-ctx.Done():
			return nil, errors.Join(append(slices.Collect(maps.Values(failed)), ctx.Err())...)
		}
	}
}

// try connects to one server.
func (t *target) try(ctx context.Context, endpoint string) (*connection, error) {
	limit := 2 * t.probeInterval
	if t.only() {
		limit = openTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return open(ctx, endpoint, t.model, t.tlsConfig, func(now state) error { return t.accept(endpoint, now) })
}

// only reports whether there is a single server.
func (t *target) only() bool { return len(t.endpoints) == 1 }

// alive returns an error if a connection whose server is silent is to end. If there can be another server, it is, unless the server
// sends a copy of the rows, which takes seconds if there are many: another server would have to do the same. Otherwise
// the server may just be busy, such as with ovn-northd's first transaction in a large cluster: then a new connection would not
// be answered earlier, and its copy of the rows would keep the server busy for longer. So the connection ends if a new
// one is answered and it is not, as after a cut in the network.
func (t *target) alive(c *connection) error {
	limit := dataTimeout
	if !t.only() || c.clustered {
		if c.copies.Load() == 0 {
			return errSilent
		}
		limit = copyTimeout
	}
	limited, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	for limited.Err() == nil {
		ctx, cancel := context.WithTimeout(limited, t.probeInterval)
		watch, _, err := watchState(ctx, c.endpoint, t.tlsConfig, t.model.Name(), func(state) {})
		cancel()
		if err == nil {
			watch.close()
			return c.watch.answer(c.ctx, min(electionTimeout, t.probeInterval))
		}
		if err := c.watch.answer(c.ctx, retryInterval); !errors.Is(err, errSilent) {
			return err
		}
	}
	return errSilent
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

// watchElections probes the server of a connection when another server is seen to lead although, as far
// as is known, it leads itself, until the connection ends.
func (t *target) watchElections(c *connection, other string) {
	for c.ctx.Err() == nil {
		t.watchElection(c, other)
		select {
		case <-c.ctx.Done():
		case <-time.After(electionDelay):
		}
	}
}

// watchElection does so until the connection to the other server ends, too.
func (t *target) watchElection(c *connection, other string) {
	seen := func(now state) {
		if now.Leader && c.leads.Load() {
			go c.demandAnswer(min(electionTimeout, t.probeInterval))
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, 2*t.probeInterval)
	defer cancel()
	watch, now, err := watchState(ctx, other, t.tlsConfig, t.model.Name(), seen)
	if err != nil {
		klog.V(4).InfoS("Cannot watch a server for elections", "endpoint", other, "err", err)
		return
	}
	defer watch.close()
	seen(now)
	tick := time.NewTicker(t.probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-watch.lost:
			return
		case <-tick.C:
			if watch.probe(c.ctx, t.probeInterval) != nil {
				return
			}
		}
	}
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
	t, err := cfg.target(m, func(endpoint string, now state) error {
		if !now.Connected {
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
	return &Connection{c.data, c}, nil
}

// Monitor requests rows and waits until the cache has them, until ctx or the connection ends.
func (c *Connection) Monitor(ctx context.Context, m *client.Monitor) (client.MonitorCookie, error) {
	return c.connection.monitor(ctx, m, func() {})
}

// Lost is closed when the connection has ended.
func (c *Connection) Lost() <-chan struct{} { return c.connection.ctx.Done() }

// Close ends the connection.
func (c *Connection) Close() { c.connection.end(errLost) }
