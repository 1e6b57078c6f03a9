package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const databaseName = "OVN_Northbound"

// errClosed means that the client was closed.
var errClosed = errors.New("connection to the northbound database is closed")

// Delays between rounds of connection attempts.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// clusterBackoff is the maximum with several members: a new leader is elected within a
	// second or two. It does not apply after a copy of the rows failed: a copy keeps a server with many rows busy for seconds, and
	// if it leads, its cluster may elect another one meanwhile.
	clusterBackoff = time.Second
)

// maxCopies bounds how many copies of the rows are received at the same time. One may be from a server that hangs.
const maxCopies = 2

// openTimeout bounds one attempt, including the initial copy of the rows.
const openTimeout = 2 * time.Minute

// globalMonitor selects the columns of NB_Global that SetGlobal needs.
var globalMonitor = client.TableMonitor{Table: nbdb.NBGlobalTable, Fields: []string{"name", "options"}}

// Client keeps a connection to the northbound database until it is closed. All
// its methods may be called from any goroutine.
type Client struct {
	cfg       Config
	clustered bool // the address has several members
	tables    *tableIndex
	copies    chan struct{}   // has an element for each copy of the rows that is being received
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	stopped   chan struct{}

	mu        sync.Mutex
	session   *session      // nil without a connection
	last      view          // of the latest session, which may have ended
	changed   chan struct{} // closed and replaced when session changes
	lastErr   error         // why there is no session
	listeners []listener
}

// listener is called when something changes in the database.
type listener struct {
	row     func(t *table, old, new model.Model) // old nil: added; new nil: deleted
	session func(v view)                         // a session started; rows may differ from before
}

// Connect connects to the leader of the database and reconnects as often as needed until
// Close. It returns when the first connection is established and the cache is complete, or
// when ctx ends.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	endpoints, err := ParseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	if tlsConfig, err := cfg.tlsConfig(); err != nil {
		return nil, err
	} else if tlsConfig == nil && strings.Contains(cfg.Address, "ssl:") {
		return nil, fmt.Errorf("connect to %s: ssl needs a private key, a certificate and a CA certificate", cfg.Address)
	}
	c := &Client{
		cfg: cfg.withDefaults(), clustered: len(endpoints) > 1, tables: newTableIndex(), copies: make(chan struct{}, maxCopies),
		changed: make(chan struct{}), stopped: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	if _, err := c.current(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection and waits until the client no longer keeps one. An attempt that is in
// progress ends by itself: within two probe intervals, or openTimeout if there is a single server.
func (c *Client) Close() {
	c.cancel()
	<-c.stopped
}

// Connected reports whether there is a connection with a complete cache.
func (c *Client) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil
}

// Endpoint returns the endpoint that the client is connected to, or "".
func (c *Client) Endpoint() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return ""
	}
	return c.session.endpoint
}

// current waits for a session.
func (c *Client) current(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		s, changed, lastErr := c.session, c.changed, c.lastErr
		c.mu.Unlock()
		if s != nil && s.ctx.Err() == nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return nil, errClosed
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the northbound database: %w", errors.Join(ctx.Err(), lastErr))
		}
	}
}

// now returns the session; nil without a connection.
func (c *Client) now() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil || c.session.ctx.Err() != nil {
		return nil
	}
	return c.session
}

// run opens sessions, one after another.
func (c *Client) run() {
	defer close(c.stopped)
	var lost waits.Lost
	defer lost.Set(waits.Wait{}, nil)
	wait := waits.Wait{Part: "northbound", For: "a connection to " + c.cfg.Address, Reason: waits.ReasonDatabase}
	lost.Set(wait, errors.New("not connected yet"))
	backoff := minBackoff
	for c.ctx.Err() == nil {
		s, err := c.open()
		if err != nil {
			lost.Set(wait, err)
			c.publish(nil, err)
			klog.V(2).InfoS("No connection to the northbound database", "err", err, "retryIn", backoff)
			select {
			case <-time.After(backoff/2 + rand.N(backoff/2)):
			case <-c.ctx.Done():
			}
			backoff = min(2*backoff, c.backoffLimit(err))
			continue
		}
		backoff = minBackoff
		klog.V(2).InfoS("Connected to the northbound database", "endpoint", s.endpoint)
		lost.Set(wait, nil)
		c.begin(s.view)
		c.publish(s, nil)
		select {
		case <-s.ctx.Done():
			klog.V(2).InfoS("Lost the northbound database", "endpoint", s.endpoint, "err", context.Cause(s.ctx))
		case <-c.ctx.Done():
			s.end(errSession)
		}
		lost.Set(wait, context.Cause(s.ctx))
		c.publish(nil, context.Cause(s.ctx))
	}
}

// open makes one attempt to open a session.
func (c *Client) open() (*session, error) {
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	return openSession(ctx, c.cfg, c.tables, dispatcher{c}, c.copies)
}

// backoffLimit returns the maximum of the delay after an attempt that failed.
func (c *Client) backoffLimit(err error) time.Duration {
	if c.clustered && !errors.Is(err, errCopy) {
		return clusterBackoff
	}
	return maxBackoff
}

// begin tells the listeners of a session that is about to be published. Nothing is written in it before
// that: a listener forgets what was written in earlier sessions.
func (c *Client) begin(v view) {
	c.mu.Lock()
	c.last = v
	listeners := slices.Clone(c.listeners)
	c.mu.Unlock()
	for _, l := range listeners {
		l.session(v)
	}
}

// lastView returns the view of the latest session.
func (c *Client) lastView() view {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *Client) publish(s *session, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.lastErr = s, err
	close(c.changed)
	c.changed = make(chan struct{})
}

// listen registers a listener for everything that happens from now on.
func (c *Client) listen(l listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, l)
}

// dispatcher passes the cache's events on to the listeners.
type dispatcher struct{ c *Client }

func (d dispatcher) OnAdd(table string, row model.Model)         { d.pass(table, nil, row) }
func (d dispatcher) OnUpdate(table string, old, row model.Model) { d.pass(table, old, row) }
func (d dispatcher) OnDelete(table string, row model.Model)      { d.pass(table, row, nil) }

func (d dispatcher) pass(table string, old, row model.Model) {
	t := tableByName[table]
	if t == nil {
		return
	}
	if row != nil {
		if o, _, ok := t.ownerOf(row); ok {
			d.c.tables.add(o.Feature, t) // before any listener is told of the row
		}
	}
	d.c.mu.Lock()
	listeners := d.c.listeners[:len(d.c.listeners):len(d.c.listeners)]
	d.c.mu.Unlock()
	for _, l := range listeners {
		l.row(t, old, row)
	}
}

// databaseModel returns the part of the schema that the writer uses, with indexes on the
// owner and on names that the schema does not index.
func databaseModel() (model.ClientDBModel, error) {
	models := map[string]model.Model{nbdb.NBGlobalTable: &nbdb.NBGlobal{}}
	indexes := map[string][]model.ClientIndex{}
	for _, t := range tables {
		models[t.Name] = t.New()
		if t.ids >= 0 {
			// By object only: an index on one column costs the library a fraction of one on
			// two, and few features share an object.
			indexes[t.Name] = append(indexes[t.Name], model.ClientIndex{Columns: []model.ColumnKey{
				{Column: "external_ids", Key: objectKey},
			}})
		}
		if len(t.Key) > 0 {
			var cols []model.ColumnKey
			for _, col := range t.Key {
				cols = append(cols, model.ColumnKey{Column: col})
			}
			indexes[t.Name] = append(indexes[t.Name], model.ClientIndex{Columns: cols})
		}
	}
	// To find the rows that share a slot.
	indexes[nbdb.NATTable] = append(indexes[nbdb.NATTable], model.ClientIndex{Columns: []model.ColumnKey{{Column: "logical_ip"}}})
	m, err := model.NewClientDBModel(databaseName, models)
	if err != nil {
		return m, fmt.Errorf("set up the database model: %w", err)
	}
	m.SetIndexes(indexes)
	return m, nil
}
