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

	// What watchServer learned: whether the database is clustered, and its client of the server's own
	// database, which is nil if nothing can change.
	clustered bool
	watch     client.Client
	data      client.Client // of the database; nil on a connection that only watches
	// attempts are the other ones that were made together with this one; tests wait for them.
	attempts *sync.WaitGroup

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
	// Connect starts the goroutine that waits for the client's other goroutines when the connection
	// breaks before it has counted them. After one answered call they no longer race; before it, a
	// break within microseconds still may.
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

// probe ends the connection when the server does not answer in time.
func (c *connection) probe(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
			c.demandAnswer(interval)
		}
	}
}

// demandAnswer ends the connection when the server does not answer in time. It asks for the server's
// own database if possible: a clustered database answers only once it has committed what others wrote.
func (c *connection) demandAnswer(timeout time.Duration) {
	one := c.data
	if c.watch != nil {
		one = c.watch
	}
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(c.ctx, timeout)
		defer cancel()
		answered <- echo(ctx, one)
	}()
	// The call may block on a full socket, where its context does not interrupt it.
	select {
	case <-c.ctx.Done():
	case err := <-answered:
		if err != nil {
			c.end(fmt.Errorf("probe %s: %w", c.endpoint, err))
		}
	case <-time.After(2 * timeout):
		c.end(fmt.Errorf("probe %s: no answer", c.endpoint))
	}
}

// watchServer returns the error of check for what the server says about a database, and ends the
// connection when check fails later. It watches nothing more if the database is neither clustered nor
// a relay's: then nothing can change.
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
	var kind serverdb.DatabaseModel
	for _, row := range dbs.Table(serverdb.DatabaseTable).RowsShallow() {
		if err := checkRow(row); err != nil {
			return err
		}
		if db := row.(*serverdb.Database); db.Name == database {
			kind = db.Model
		}
	}
	switch c.clustered = kind == serverdb.DatabaseModelClustered; kind {
	case "":
		return fmt.Errorf("%s has no database %s", c.endpoint, database)
	case serverdb.DatabaseModelStandalone:
		c.disconnect(watch)
	default:
		c.watch = watch
	}
	return context.Cause(c.ctx) // check may have failed meanwhile
}
