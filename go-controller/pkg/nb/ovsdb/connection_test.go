package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// dialed is a row that a client of Dial reads.
type dialed struct {
	UUID string `ovsdb:"_uuid"`
	Name string `ovsdb:"name"`
}

func dialAny(t *testing.T, address string, probeInterval time.Duration) (*Connection, error) {
	t.Helper()
	m, err := model.NewClientDBModel(databaseName, map[string]model.Model{"Logical_Switch": &dialed{}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), m, Config{Address: address, ProbeInterval: probeInterval})
	if err == nil {
		t.Cleanup(func() {
			c.Close()
			c.connection.attempts.Wait() // the library cannot take a server that closes a connection while it is made
		})
	}
	return c, err
}

// TestServerHangs: the server of a connection hangs, as after the loss of its node, and no election
// tells of it, since it does not lead. The connection ends, and another server takes its place at
// once, although the first one still accepts connections.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	cluster := ovsdbtest.StartCluster(t, 3)
	leader := cluster.Leader()
	follower := cluster.Servers[slices.IndexFunc(cluster.Servers, func(s *ovsdbtest.Server) bool { return s != leader })]
	c, err := dialAny(t, follower.Socket(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	follower.Freeze()
	t.Cleanup(follower.Thaw)
	eventually.Receive(t, "the end of the connection", c.Lost())
	eventually.Succeeds(t, "a connection to another server", func() error {
		c, err = dialAny(t, cluster.Address(), time.Second)
		return err
	})
	if at := c.connection.endpoint; at == follower.Socket() {
		t.Errorf("connected to %s, which hangs", at)
	}
}

// TestServerLeavesItsCluster: the server of a connection loses its cluster, and would show old rows.
func TestServerLeavesItsCluster(t *testing.T) {
	t.Parallel()
	cluster := ovsdbtest.StartCluster(t, 3)
	alone := cluster.Servers[0]
	c, err := dialAny(t, alone.Socket(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range cluster.Servers[1:] {
		s.Kill()
	}
	eventually.Receive(t, "the end of the connection", c.Lost())
	// The connection may also end because the server is busy, before that notices that it is alone.
	eventually.Succeeds(t, "to be refused", func() error {
		_, err := dialAny(t, alone.Socket(), time.Second)
		if err == nil {
			return errors.New("the server accepts a connection")
		}
		if !strings.Contains(err.Error(), "is not connected to its cluster") {
			return err
		}
		return nil
	})
	cluster.Servers[1].Start()
	eventually.Succeeds(t, "to connect to the server, which has a majority again", func() error {
		_, err := dialAny(t, alone.Socket(), time.Second)
		return err
	})
}

// TestConnectionIsClosed: Close ends a connection to a server that is not clustered.
func TestConnectionIsClosed(t *testing.T) {
	t.Parallel()
	s := ovsdbtest.StartNB(t)
	c, err := dialAny(t, s.Socket(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	eventually.Receive(t, "the end of the connection", c.Lost())
}

// TestListenersFirst: listeners know of a session before anything can be written in it. Otherwise, what they forget
// of earlier sessions would include the first rows of this one.
func TestListenersFirst(t *testing.T) {
	t.Parallel()
	s := ovsdbtest.StartNB(t)
	c, err := Connect(t.Context(), Config{Address: s.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	writable := make(chan bool, 1)
	c.listen(listener{row: func(*table, model.Model, model.Model) {}, session: func(view) { writable <- c.Connected() }})
	s.Kill()
	s.Start()
	if eventually.Receive(t, "the next session", writable) {
		t.Error("rows may be written before listeners know of the session")
	}
}

// TestHangingServerDelaysNobody: while a server hangs, others that cannot be used yet are tried again.
func TestHangingServerDelaysNobody(t *testing.T) {
	t.Parallel()
	hanging, s := ovsdbtest.StartNB(t), ovsdbtest.StartNB(t)
	hanging.Freeze()
	t.Cleanup(hanging.Thaw)
	s.Kill()
	path := strings.TrimPrefix(s.Socket(), "unix:")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	refusing, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := dialAny(t, hanging.Socket()+","+s.Socket(), time.Hour)
		done <- err
	}()
	conn, err := refusing.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	refusing.Close()
	s.Start()
	if err := eventually.Receive(t, "a connection", done); err != nil {
		t.Error(err)
	}
}

// TestServerWithoutTheDatabase: one of the servers has another database.
func TestServerWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	other, s := ovsdbtest.StartSB(t), ovsdbtest.StartNB(t)
	for range 5 {
		c, err := dialAny(t, other.Socket()+","+s.Socket(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if c.connection.endpoint != s.Socket() {
			t.Errorf("connected to %s", c.connection.endpoint)
		}
	}
	if _, err := dialAny(t, other.Socket(), time.Second); err == nil || !strings.Contains(err.Error(), "has no database OVN_Northbound") {
		t.Errorf("connecting to a server without the database: %v", err)
	}
}

// TestServerIsKilled: the server of a connection that was not used yet is killed.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	s := ovsdbtest.StartNB(t)
	c, err := dialAny(t, s.Socket(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	eventually.Receive(t, "the end of the connection", c.Lost())
}

// TestBusyServer: the only server does not answer for several probe intervals, as while it is busy. The
// connection stays, since another one would not be answered earlier.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	const interval = 500 * time.Millisecond
	s := ovsdbtest.StartNB(t)
	c, err := dialAny(t, s.Socket(), interval)
	if err != nil {
		t.Fatal(err)
	}
	s.Freeze()
	t.Cleanup(s.Thaw)
	// Attempts to connect while it is busy are answered afterwards.
	late := make(chan error, 1)
	go func() {
		_, err := dialAny(t, s.Socket(), 2*interval)
		late <- err
	}()
	select {
	case <-c.Lost():
		t.Error("the connection ended")
	case <-time.After(3 * interval):
	}
	s.Thaw()
	if err := eventually.Receive(t, "the late connection", late); err != nil {
		t.Error(err)
	}
	eventually.True(t, "the connection to stay", func() bool { return c.connection.ctx.Err() == nil }, eventually.Stays(2*interval))
}

// TestBusyWithCopy: a member of a cluster is silent for several probe intervals while it sends a copy of the rows, as it
// is with many of them. The connection stays: another member would have to do the same. Afterwards it ends as any other.
func TestBusyWithCopy(t *testing.T) {
	t.Parallel()
	const interval = 200 * time.Millisecond // in three of them no member misses an election
	cluster := ovsdbtest.StartCluster(t, 3)
	leader := cluster.Leader()
	follower := cluster.Servers[slices.IndexFunc(cluster.Servers, func(s *ovsdbtest.Server) bool { return s != leader })]
	c, err := dialAny(t, follower.Socket(), interval)
	if err != nil {
		t.Fatal(err)
	}
	follower.Freeze()
	t.Cleanup(follower.Thaw)
	copied := make(chan error, 1)
	go func() {
		_, err := c.Monitor(t.Context(), c.NewMonitor(client.WithTable(&dialed{})))
		copied <- err
	}()
	select {
	case <-c.Lost():
		t.Error("the connection ended")
	case <-time.After(3 * interval):
	}
	follower.Thaw()
	if err := eventually.Receive(t, "the copy", copied); err != nil {
		t.Error(err)
	}
	if n := c.connection.copies.Load(); n != 0 {
		t.Errorf("%d copies are still awaited", n)
	}
	if t.Failed() {
		return
	}
	follower.Freeze()
	eventually.Receive(t, "the end of the connection", c.Lost())
}

// TestCopies: a session does not ask for a copy of the rows while others are still received, as from servers that hang.
func TestCopies(t *testing.T) {
	t.Parallel()
	s := ovsdbtest.StartNB(t)
	copies := make(chan struct{}, maxCopies)
	open := func(ctx context.Context) error {
		session, err := openSession(ctx, Config{Address: s.Socket()}.withDefaults(), newTableIndex(), &cache.EventHandlerFuncs{}, copies)
		if err == nil {
			session.end(errLost)
		}
		return err
	}
	if err := open(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the end of the copy", func() bool { return len(copies) == 0 })
	for range maxCopies {
		select {
		case copies <- struct{}{}:
		default:
			t.Fatal("a copy that has been received is still counted")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more than allowed: %v", err)
	}
	<-copies
	if err := open(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBackoffAfterCopy: attempts become rare if copies fail, also where other failures are retried soon.
func TestBackoffAfterCopy(t *testing.T) {
	c := &Client{clustered: true}
	if limit := c.backoffLimit(errLost); limit != clusterBackoff {
		t.Errorf("after a loss at most %s", limit)
	}
	if limit := c.backoffLimit(fmt.Errorf("%w of a: %w", errCopy, errLost)); limit != maxBackoff {
		t.Errorf("after a copy at most %s", limit)
	}
}

// TestSilentConnection: a connection to the only server is not answered any more, but a new one is.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	s := ovsdbtest.StartNB(t)
	path := t.TempDir() + "/relay"
	relay, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { relay.Close() })
	cut := make(chan struct{})
	go func() {
		for {
			client, err := relay.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", strings.TrimPrefix(s.Socket(), "unix:"))
			if err != nil {
				client.Close()
				continue
			}
			silent := cut
			select {
			case <-cut: // a new connection works
				silent = nil
			default:
			}
			go forward(server, client, nil)
			go forward(client, server, silent)
		}
	}()
	c, err := dialAny(t, "unix:"+path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	close(cut)
	eventually.Receive(t, "the end of the connection", c.Lost())
	if cause := context.Cause(c.connection.ctx); !errors.Is(cause, errSilent) {
		t.Errorf("the connection ended: %v", cause)
	}
}

// forward copies what arrives, until one end closes. After cut is closed it drops everything.
func forward(to, from net.Conn, cut <-chan struct{}) {
	defer to.Close()
	defer from.Close()
	data := make([]byte, 64<<10)
	for {
		n, err := from.Read(data)
		if err != nil {
			return
		}
		select {
		case <-cut:
			continue
		default:
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
	}
}
