package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
	"github.com/ovn-org/libovsdb/ovsdb/serverdb"
	"k8s.io/klog/v2"
)

// errLost means that a connection was closed, by the server or by us.
var errLost = errors.New("connection was lost")

// connection is one connection to one server, which may take several clients of the library: a
// client reads one database. It ends as a whole.
type connection struct {
	endpoint string

	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	clients []client.Client // open ones
}

func newConnection(endpoint string) *connection {
	c := &connection{endpoint: endpoint}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// dial connects a client that lives as long as the connection and does not reconnect by itself.
func (c *connection) dial(ctx context.Context, m model.ClientDBModel, tlsConfig *tls.Config) (client.Client, error) {
	logger := klog.Background().V(4)
	one, err := client.NewOVSDBClient(m, client.WithEndpoint(c.endpoint), client.WithTLSConfig(tlsConfig), client.WithLogger(&logger))
	if err != nil {
		return nil, fmt.Errorf("set up client for %s: %w", c.endpoint, err)
	}
	c.mu.Lock()
	c.clients = append(c.clients, one)
	c.mu.Unlock()
	go c.endWith(one) // before it connects: the library drops a notification that nobody waits for
	if err := one.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.endpoint, err)
	}
	if c.ctx.Err() != nil { // ended meanwhile: nothing else would close it
		go one.Close()
		return nil, context.Cause(c.ctx)
	}
	// The library handles the loss of a connection in a goroutine that it starts while it connects.
	// Only a call orders that goroutine after the ones it waits for.
	if err := echo(ctx, one); err != nil {
		return nil, fmt.Errorf("probe %s: %w", c.endpoint, err)
	}
	return one, nil
}

// disconnect closes a client that is no longer needed.
func (c *connection) disconnect(one client.Client) {
	c.forget(one)
	one.Close()
}

// forget takes a client from the open ones, and returns whether it was one of them.
func (c *connection) forget(one client.Client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := len(c.clients)
	c.clients = slices.DeleteFunc(c.clients, func(other client.Client) bool { return other == one })
	return len(c.clients) < open
}

// end ends the connection. It does not wait for the clients to close, which a hanging server can
// delay.
func (c *connection) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel(cause)
	for _, one := range c.clients {
		go one.Close()
	}
	c.clients = nil
}

// endWith ends the connection when a client that is needed loses its own.
func (c *connection) endWith(one client.Client) {
	select {
	case <-one.DisconnectNotify():
		if c.forget(one) {
			c.end(errLost)
		}
	case <-c.ctx.Done():
	}
}

// echo makes the server answer, to an empty transaction: the library's Echo reads the answer even
// when ctx ended before it arrived, and so while it may be arriving.
func echo(ctx context.Context, one client.Client) error {
	_, err := one.Transact(ctx)
	return err
}

// probe ends the connection when the server does not answer a client in time.
func (c *connection) probe(one client.Client, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		answered := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(c.ctx, interval)
			defer cancel()
			answered <- echo(ctx, one)
		}()
		// The call may block on a full socket, where its context does not interrupt it.
		select {
		case <-c.ctx.Done():
			return
		case err := <-answered:
			if err != nil {
				c.end(fmt.Errorf("probe %s: %w", c.endpoint, err))
			}
		case <-time.After(2 * interval):
			c.end(fmt.Errorf("probe %s: no answer", c.endpoint))
		}
	}
}

// watchServer returns the error of check for what the server says about a database, and ends the
// connection when check fails later. It does nothing more if the database is not clustered: then
// nothing can change.
func (c *connection) watchServer(ctx context.Context, database string, tlsConfig *tls.Config, check func(*serverdb.Database) error) error {
	m, err := serverdb.FullDatabaseModel()
	if err != nil {
		return err
	}
	watch, err := c.dial(ctx, m, tlsConfig)
	if err != nil {
		return err
	}
	dbs := watch.Cache()
	if dbs == nil {
		return errLost
	}
	checkRow := func(row model.Model) error {
		db, ok := row.(*serverdb.Database)
		if !ok || db.Name != database || db.Model == serverdb.DatabaseModelStandalone {
			return nil
		}
		return check(db)
	}
	dbs.AddEventHandler(&cache.EventHandlerFuncs{UpdateFunc: func(_ string, _, row model.Model) {
		if err := checkRow(row); err != nil {
			c.end(err)
		}
	}})
	monitor := watch.NewMonitor()
	monitor.Method = ovsdb.ConditionalMonitorRPC // the only one that the server's own database supports
	monitor.Tables = []client.TableMonitor{{Table: serverdb.DatabaseTable, Fields: []string{"name", "model", "leader", "connected"}}}
	if _, err := watch.Monitor(ctx, monitor); err != nil {
		return fmt.Errorf("monitor the state of %s: %w", c.endpoint, err)
	}
	clustered := false
	for _, row := range dbs.Table(serverdb.DatabaseTable).RowsShallow() {
		if err := checkRow(row); err != nil {
			return err
		}
		db := row.(*serverdb.Database)
		clustered = clustered || db.Name == database && db.Model != serverdb.DatabaseModelStandalone
	}
	if !clustered {
		c.disconnect(watch)
	}
	return nil
}

// Connection is a client of a database other than the northbound one, from Dial to the loss of its
// server.
type Connection struct {
	client.Client
	connection *connection
	dials      *sync.WaitGroup // of the Dial that made it
}

// Dial connects to the endpoints of cfg and returns the first connection to a server that answers
// and, if the database is clustered, is connected to its cluster. The connection, for model m, ends
// when either is no longer so; it is not restored. The client monitors nothing yet.
func Dial(ctx context.Context, m model.ClientDBModel, cfg Config) (*Connection, error) {
	cfg = cfg.withDefaults()
	endpoints, err := ParseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	type result struct {
		*Connection
		err error
	}
	results, returned := make(chan result), make(chan struct{})
	defer close(returned)
	dials := &sync.WaitGroup{}
	for _, endpoint := range endpoints {
		dials.Go(func() {
			// The slower ones are not interrupted: the library reads the answer to an interrupted call
			// while it may be arriving.
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*cfg.ProbeInterval)
			defer cancel()
			c, err := dial(limited, m, endpoint, tlsConfig, cfg.ProbeInterval)
			if err == nil {
				c.dials = dials
			}
			select {
			case results <- result{c, err}:
			case <-returned: // another one was faster
				if err == nil {
					c.Close()
				}
			}
		})
	}
	var errs []error
	for range endpoints {
		select {
		case r := <-results:
			if r.err == nil {
				return r.Connection, nil
			}
			errs = append(errs, r.err)
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %s: %w", cfg.Address, errors.Join(append(errs, ctx.Err())...))
		}
	}
	return nil, errors.Join(errs...)
}

// dial connects to one endpoint.
func dial(ctx context.Context, m model.ClientDBModel, endpoint string, tlsConfig *tls.Config, probeInterval time.Duration) (_ *Connection, err error) {
	c := newConnection(endpoint)
	defer func() {
		if err != nil {
			c.end(err)
		}
	}()
	err = c.watchServer(ctx, m.Name(), tlsConfig, func(db *serverdb.Database) error {
		if !db.Connected {
			return fmt.Errorf("%s is not connected to its cluster", endpoint)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	data, err := c.dial(ctx, m, tlsConfig)
	if err != nil {
		return nil, err
	}
	go c.probe(data, probeInterval)
	return &Connection{Client: data, connection: c}, nil
}

// Lost is closed when the connection has ended.
func (c *Connection) Lost() <-chan struct{} { return c.connection.ctx.Done() }

// Close ends the connection.
func (c *Connection) Close() { c.connection.end(errLost) }
