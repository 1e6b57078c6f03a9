// Package proxy stands between an OVSDB client and its server, and counts what the client
// does: transactions, operations, rows and bytes. It hands on every byte before it looks
// at it. OVSDB's JSON-RPC messages follow each other without anything in between, so they
// are decoded, not split.
package proxy

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is a listener that connects each client with the server.
type Proxy struct {
	listener net.Listener
	target   string

	sent, received atomic.Int64 // bytes

	mu           sync.Mutex
	conns        map[net.Conn]bool
	transactions []Transaction
}

// Transaction is one that the server committed.
type Transaction struct {
	Asked, Answered time.Time
	// Rows are how many rows of each table were inserted, changed or deleted.
	Rows map[string]int
	// Inserted are how many rows were inserted for each owner type and table.
	Inserted map[Kind]int
	// Owners are those whose rows were inserted.
	Owners map[Owner]bool
}

// Kind is what rows are.
type Kind struct{ Feature, Table string }

// Owner is whose rows they are.
type Owner struct{ Feature, Object string }

// Changes tells how many rows of tables other than those left out were changed.
func (t Transaction) Changes(without ...string) (n int) {
	for table, rows := range t.Rows {
		n += rows
		for _, w := range without {
			if w == table {
				n -= rows
			}
		}
	}
	return n
}

// Listen serves a unix socket in front of the server's.
func Listen(socket, target string) (*Proxy, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

// Close ends all connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	return err
}

// Bytes returns how many bytes clients have sent and received.
func (p *Proxy) Bytes() (sent, received int64) { return p.sent.Load(), p.received.Load() }

// Count returns how many transactions there were.
func (p *Proxy) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.transactions)
}

// Since returns the transactions after the first n.
func (p *Proxy) Since(n int) []Transaction {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.transactions[n:len(p.transactions):len(p.transactions)]
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.serve(client, server)
	}
}

func (p *Proxy) serve(client, server net.Conn) {
	s := newSession(p)
	var running sync.WaitGroup
	running.Go(func() {
		defer s.end()
		pass(server, client, &p.sent, s.request)
	})
	running.Go(func() { pass(client, server, &p.received, s.answer) })
	go func() {
		running.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}()
}

// chunk is a part of what was passed on, and when it came.
type chunk struct {
	text []byte
	at   time.Time
}

// backlog is how many chunks may wait until they are looked at.
const backlog = 4096

// pass hands on bytes until either side ends, and has each message looked at.
func pass(to, from net.Conn, n *atomic.Int64, look func(m message, at time.Time)) {
	chunks := make(chan chunk, backlog)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := &reader{chunks: chunks}
		for dec := json.NewDecoder(r); ; {
			var m message
			if err := dec.Decode(&m); err != nil {
				break
			}
			look(m, r.at)
		}
		for range chunks { // what is no JSON is passed on all the same
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		count, err := from.Read(buffer)
		if count > 0 {
			at := time.Now()
			n.Add(int64(count))
			if _, failed := to.Write(buffer[:count]); failed != nil {
				err = errors.Join(err, failed)
			}
			chunks <- chunk{append([]byte(nil), buffer[:count]...), at}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	to.Close()
	from.Close()
	<-done
}

// reader reads chunks; at is when the last one came.
type reader struct {
	chunks chan chunk
	rest   []byte
	at     time.Time
}

func (r *reader) Read(into []byte) (int, error) {
	if len(r.rest) == 0 {
		c, ok := <-r.chunks
		if !ok {
			return 0, io.EOF
		}
		r.rest, r.at = c.text, c.at
	}
	n := copy(into, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
