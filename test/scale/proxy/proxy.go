// Package proxy is a proxy between an OVSDB client and its server that counts what the client
// does: transactions, operations, rows and bytes. It forwards every byte before looking
// at it. OVSDB's JSON-RPC messages follow each other without a separator, so they
// are found by decoding.
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

// Proxy connects each client to the server whose socket stands for the one that the client has dialed.
type Proxy struct {
	sent, received atomic.Int64 // bytes

	mu           sync.Mutex
	listeners    []net.Listener
	conns        map[net.Conn]bool
	transactions []Transaction
}

// Transaction is a committed transaction.
type Transaction struct {
	Asked, Answered time.Time
	// Rows is the number of rows inserted, changed or deleted, by table.
	Rows map[string]int
	// Inserted is the number of rows inserted, by owner type and table.
	Inserted map[Kind]int
	// Owners are the owners of the inserted rows.
	Owners map[Owner]bool
}

// Kind is a kind of rows.
type Kind struct{ Feature, Table string }

// Owner is an owner of rows.
type Owner struct{ Feature, Object string }

// Changes returns the number of changed rows in all tables except the given ones.
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

// New returns a proxy that does not listen yet.
func New() *Proxy { return &Proxy{conns: map[net.Conn]bool{}} }

// Listen listens on a unix socket, besides those of earlier calls, and forwards connections to the server's.
func (p *Proxy) Listen(socket, target string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, l)
	go p.accept(l, target)
	return nil
}

// Close ends all connections.
func (p *Proxy) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	for c := range p.conns {
		c.Close()
	}
	return errors.Join(errs...)
}

// Bytes returns the numbers of bytes that clients have sent and received.
func (p *Proxy) Bytes() (sent, received int64) { return p.sent.Load(), p.received.Load() }

// Count returns the number of transactions so far.
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

func (p *Proxy) accept(l net.Listener, target string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", target)
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

// chunk is a part of the forwarded data, and the time at which it arrived.
type chunk struct {
	text []byte
	at   time.Time
}

// backlog is how many chunks may wait to be decoded.
const backlog = 4096

// pass forwards bytes until either side closes the connection, and calls look with each message.
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
		for range chunks { // after invalid JSON, the remaining data is only forwarded
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

// reader reads chunks; at is when the last one arrived.
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
