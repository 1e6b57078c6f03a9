package raft

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// How the leader is found and checked.
const (
	// every is the time between two rounds while there is no leader; an election takes a second or two. hold is how
	// long a client waits for a leader; the client may be gone by then.
	every = 250 * time.Millisecond
	hold  = 15 * time.Second
	// check is the time between two checks of the leader, and timeout the one for a member's answer.
	check   = time.Second
	timeout = 2 * time.Second
)

// Lead connects clients of the leader socket to the leading member, until ctx is done. It is for the relay for nodes, and for ovn-northd, which
// works with leaders only, and by itself takes up to 16 seconds to find the next leader among several members,
// since it waits longer after each member that is not the leader. A connection to the socket waits for a leader,
// and is closed when that member is no longer the leader. secure is the TLS configuration for connections to
// members, nil for TCP.
func (m Member) Lead(ctx context.Context, secure *tls.Config) error {
	name := m.Database.LeaderSocket
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier process: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen at the socket for the leader: %w", err)
	}
	// The socket of this name may be that of the next process by the time this one closes its own: the next pod may start
	// before this one has ended.
	listener.SetUnlinkOnClose(false)
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		client, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept at the socket for the leader: %w", err)
		}
		running.Go(func() { m.serve(ctx, client, secure) })
	}
}

// serve connects a client to the leader, for as long as that leads.
func (m Member) serve(ctx context.Context, client net.Conn, secure *tls.Config) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(ctx, func() { _ = client.Close() })
	leader, err := m.leader(ctx, secure)
	if err != nil {
		klog.ErrorS(err, "Found no leader", "database", m.Database.Name)
		return
	}
	defer leader.close()
	data, err := m.dial(ctx, leader.at, secure)
	if err != nil {
		klog.ErrorS(err, "Cannot connect to the leader", "database", m.Database.Name)
		return
	}
	context.AfterFunc(ctx, func() { _ = data.Close() })
	klog.InfoS("Connected to the leader", "database", m.Database.Name, "leader", leader.at)
	for _, pair := range [][2]net.Conn{{client, data}, {data, client}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			end()
		}()
	}
	tick := time.NewTicker(check)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if leads, err := leader.isLeader(); err != nil || !leads {
			klog.InfoS("The leader no longer leads", "database", m.Database.Name, "leader", leader.at, "err", err)
			return
		}
	}
}

// leader waits for a member that leads.
func (m Member) leader(ctx context.Context, secure *tls.Config) (*memberConn, error) {
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	for {
		if a := m.findLeader(ctx, secure); a != nil {
			return a, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(every):
		}
	}
}

// findLeader asks all members concurrently, and returns the connection to the first that says it leads, so that a member
// that does not answer delays nobody.
func (m Member) findLeader(ctx context.Context, secure *tls.Config) *memberConn {
	answers := make(chan *memberConn, len(m.Members.Clients))
	for _, at := range m.Members.Clients {
		go func() {
			c, err := m.dial(ctx, at.String(), secure)
			if err != nil {
				answers <- nil
				return
			}
			a := &memberConn{at: at.String(), schema: m.Database.Schema, conn: c, in: json.NewDecoder(c)}
			if leads, err := a.isLeader(); err != nil || !leads {
				a.close()
				a = nil
			}
			answers <- a
		}()
	}
	for i := range m.Members.Clients {
		leader := <-answers
		if leader == nil {
			continue
		}
		go func() { // another member may still believe that it leads
			for range len(m.Members.Clients) - i - 1 {
				if a := <-answers; a != nil {
					a.close()
				}
			}
		}()
		return leader
	}
	return nil
}

func (m Member) dial(ctx context.Context, at string, secure *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if secure == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", at)
	}
	return (&tls.Dialer{Config: secure}).DialContext(ctx, "tcp", at)
}

// memberConn is a connection to a member for asking whether it leads.
type memberConn struct {
	at, schema string
	conn       net.Conn
	in         *json.Decoder
	id         int
}

func (a *memberConn) close() { _ = a.conn.Close() }

// isLeader asks the member's _Server database. A member that cannot reach a majority does not lead, whatever it
// believes.
func (a *memberConn) isLeader() (bool, error) {
	a.id++
	if err := a.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return false, err
	}
	err := json.NewEncoder(a.conn).Encode(map[string]any{"id": a.id, "method": "transact", "params": []any{"_Server", map[string]any{
		"op": "select", "table": "Database", "where": []any{[]any{"name", "==", a.schema}}, "columns": []string{"leader", "connected"},
	}}})
	for err == nil {
		var message struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
			Error  json.RawMessage
			Result []struct {
				Rows []struct{ Leader, Connected bool }
			}
		}
		if err = a.in.Decode(&message); err != nil {
			break
		}
		if message.Method == "echo" { // the server's keepalive
			err = json.NewEncoder(a.conn).Encode(map[string]any{"id": message.ID, "result": message.Params, "error": nil})
			continue
		}
		if string(message.ID) != fmt.Sprint(a.id) || len(message.Result) != 1 || len(message.Result[0].Rows) != 1 {
			return false, fmt.Errorf("unexpected answer of %s: error %s", a.at, message.Error)
		}
		row := message.Result[0].Rows[0]
		return row.Leader && row.Connected, nil
	}
	return false, fmt.Errorf("ask %s: %w", a.at, err)
}
