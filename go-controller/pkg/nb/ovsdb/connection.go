package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb/serverdb"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/replica"
)

// errLost means that a connection was closed, by the server or by us.
var errLost = errors.New("connection was lost")

// connection is a connection to one server: to a database, and to what the server says about it.
// Both end together.
type connection struct {
	endpoint string

	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc

	clustered bool        // so is the database
	leads     atomic.Bool // the server leads its cluster, as far as it says
	watch     *stateWatch
	data      client.Client
	guard     *replica.Guard
	copies    atomic.Int32 // copies of rows that the server still sends
	// attempts are the other ones that were made together with this one; tests wait for them.
	attempts *sync.WaitGroup
}

// open connects to a server and its database, which must have model m; ctx must have a deadline. check returns an error if the
// server cannot be used: the error of open for the state that the server has, or the end of the
// connection when the state changes.
func open(ctx context.Context, endpoint string, m model.ClientDBModel, tlsConfig *tls.Config, check func(state) error) (_ *connection, err error) {
	c := &connection{endpoint: endpoint}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.guard = replica.NewGuard(c.end)
	defer func() {
		if err != nil {
			c.end(err)
		}
	}()
	changed := func(now state) {
		c.leads.Store(now.Leader)
		if now.Model == serverdb.DatabaseModelStandalone {
			return
		}
		if err := check(now); err != nil {
			c.end(err)
		}
	}
	var now state
	if c.watch, now, err = watchState(ctx, endpoint, tlsConfig, m.Name(), changed); err != nil {
		return nil, err
	}
	context.AfterFunc(c.ctx, c.watch.close)
	go c.endWith(c.watch.lost)
	c.clustered = now.Model == serverdb.DatabaseModelClustered
	if changed(now); c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	logger := c.guard.Logger(klog.Background().V(4))
	c.data, err = client.NewOVSDBClient(m, client.WithEndpoint(endpoint), client.WithTLSConfig(tlsConfig), client.WithLogger(&logger))
	if err != nil {
		return nil, fmt.Errorf("set up client for %s: %w", endpoint, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Not interrupted from here: the library reads the answer to an interrupted call while it may be
	// arriving.
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	go c.endWith(c.data.DisconnectNotify()) // before it connects: the library drops a notification that nobody waits for
	if err := c.data.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	// The connection closes its client when it ends, whatever may be using it.
	context.AfterFunc(c.ctx, c.data.Close)
	// Connect starts the goroutine that waits for the client's other goroutines when the connection
	// breaks before it has counted them. After one answered call they no longer race; before it, a
	// break within microseconds still may.
	if err := echo(ctx, c.data); err != nil {
		return nil, fmt.Errorf("probe %s: %w", endpoint, err)
	}
	return c, context.Cause(c.ctx)
}

// end ends the connection. It does not wait for the client to close, which a hanging server can
// delay.
func (c *connection) end(cause error) { c.cancel(cause) }

// endWith ends the connection when a part of it is lost.
func (c *connection) endWith(lost <-chan struct{}) {
	select {
	case <-lost:
		c.end(errLost)
	case <-c.ctx.Done():
	}
}

// echo makes the server answer, to an empty transaction: the library's Echo reads the answer even
// when ctx ended before it arrived.
func echo(ctx context.Context, one client.Client) error {
	_, err := one.Transact(ctx)
	return err
}

// monitor fills the cache. It returns when the connection ends, too, which the library's call may not
// notice, and does not interrupt that call, whose answer may be arriving. If the cache becomes
// incomplete later, the connection ends. done is called when that call has returned.
func (c *connection) monitor(ctx context.Context, m *client.Monitor, done func()) (client.MonitorCookie, error) {
	if err := c.limit(m); err != nil {
		done()
		return client.MonitorCookie{}, err
	}
	c.copies.Add(1)
	type result struct {
		cookie client.MonitorCookie
		err    error
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), dataTimeout)
	filled := make(chan result, 1)
	go func() {
		defer cancel()
		defer done()
		cookie, err := c.data.Monitor(limited, m)
		c.guard.Filled()
		c.copies.Add(-1)
		filled <- result{cookie, err}
	}()
	select {
	case r := <-filled:
		return r.cookie, r.err
	case <-c.ctx.Done():
		return client.MonitorCookie{}, context.Cause(c.ctx)
	case <-ctx.Done():
		return client.MonitorCookie{}, ctx.Err()
	}
}

// limit limits the tables for which m names no columns to those of the model. The library would request all columns
// of the schema, but refuse an update that changes one that the model does not have.
func (c *connection) limit(m *client.Monitor) error {
	rows := c.data.Cache()
	if rows == nil {
		return errLost
	}
	types := rows.DatabaseModel().Types()
	for i := range m.Tables {
		t := &m.Tables[i]
		row, ok := types[t.Table]
		if !ok || len(t.Fields) > 0 {
			continue
		}
		for field := range row.Elem().NumField() {
			if column := row.Elem().Field(field).Tag.Get("ovsdb"); column != "" && column != "_uuid" {
				t.Fields = append(t.Fields, column)
			}
		}
	}
	return nil
}

// dataTimeout bounds the answer of a database. It answers only after the copy of its rows, if one was
// requested, and a clustered database only once it has committed what others wrote.
const dataTimeout = openTimeout

// copyTimeout bounds how long a member of a cluster may be silent while it sends a copy of the rows.
const copyTimeout = 30 * time.Second

// probe ends the connection when the server, or its database, does not answer in time and alive does not
// return nil either.
func (c *connection) probe(interval time.Duration, alive func() error) {
	go c.every(interval, func() {
		ctx, cancel := context.WithTimeout(c.ctx, dataTimeout)
		defer cancel()
		if err := echo(ctx, c.data); err != nil {
			c.end(fmt.Errorf("probe the database of %s: %w", c.endpoint, err))
		}
	})
	c.every(interval, func() {
		err := c.watch.probe(c.ctx, interval)
		if errors.Is(err, errSilent) {
			err = alive()
		}
		c.endIf(err)
	})
}

// every calls f until the connection ends.
func (c *connection) every(interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// demandAnswer ends the connection when the server does not answer in time.
func (c *connection) demandAnswer(timeout time.Duration) {
	c.endIf(c.watch.probe(c.ctx, timeout))
}

// endIf ends the connection if a probe failed.
func (c *connection) endIf(err error) {
	if err != nil {
		c.end(fmt.Errorf("probe %s: %w", c.endpoint, err))
	}
}
