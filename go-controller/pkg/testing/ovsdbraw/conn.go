package ovsdbraw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// Conn is a connection to a server. It is safe for concurrent use.
type Conn struct {
	conn   net.Conn
	update func(params json.RawMessage)
	closed chan struct{} // closed when nothing more is read

	sending sync.Mutex // guards writes to conn
	mu      sync.Mutex // guards the rest
	last    int
	waiting map[int]chan message
}

// message is anything that a server sends: a response, or its own request or notification.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// Dial connects to an address such as "unix:/run/ovn/ovnnb_db.sock". update is called with the parameters of each
// update of a monitor, one at a time; it may be nil.
func Dial(ctx context.Context, address string, update func(params json.RawMessage)) (*Conn, error) {
	path, ok := strings.CutPrefix(address, "unix:")
	if !ok {
		return nil, fmt.Errorf("%s is no unix socket", address)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to ovsdb-server: %w", err)
	}
	c := &Conn{conn: conn, update: update, closed: make(chan struct{}), waiting: map[int]chan message{}}
	go c.read()
	return c, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Closed returns a channel that is closed when nothing more can come from the server.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// read dispatches what the server sends until the connection ends. There are no separators between messages.
func (c *Conn) read() {
	defer close(c.closed)
	for dec := json.NewDecoder(c.conn); ; {
		var m message
		if dec.Decode(&m) != nil {
			return
		}
		switch m.Method {
		case "":
			c.answer(m)
		case "echo":
			_ = c.send(fmt.Appendf(nil, `{"id":%s,"result":%s,"error":null}`, m.ID, m.Params))
		default:
			if c.update != nil {
				c.update(m.Params)
			}
		}
	}
}

func (c *Conn) answer(m message) {
	var id int
	if json.Unmarshal(m.ID, &id) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting, ok := c.waiting[id]; ok {
		waiting <- m
		delete(c.waiting, id)
	}
}

func (c *Conn) send(text []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	_, err := c.conn.Write(text)
	return err
}

// Call sends a request and returns its result.
func (c *Conn) Call(ctx context.Context, method string, params ...any) (json.RawMessage, error) {
	text, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return c.request(ctx, method, text)
}

// request is like Call, with encoded parameters.
func (c *Conn) request(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	answer := make(chan message, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = answer
	c.mu.Unlock()
	if err := c.send(fmt.Appendf(nil, `{"id":%d,"method":%q,"params":%s}`, id, method, params)); err != nil {
		return nil, fmt.Errorf("send to ovsdb-server: %w", err)
	}
	select {
	case m := <-answer:
		if len(m.Error) > 0 && string(m.Error) != "null" {
			return nil, fmt.Errorf("ovsdb-server refuses %s: %s", method, m.Error)
		}
		return m.Result, nil
	case <-c.closed:
		return nil, errors.New("ovsdb-server closed the connection")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Outcome is the result of one operation of a transaction.
type Outcome struct {
	Count          int
	Rows           []Row
	Error, Details string
}

// Transaction is an encoded transaction.
type Transaction []byte

// Prepare encodes a transaction.
func Prepare(database string, ops ...Op) (Transaction, error) {
	params := []any{database}
	for _, op := range ops {
		params = append(params, op)
	}
	text, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode transaction: %w", err)
	}
	return text, nil
}

// Send sends a transaction and returns the outcome of each operation, or an error if one of them is refused.
func (c *Conn) Send(ctx context.Context, t Transaction) ([]Outcome, error) {
	result, err := c.request(ctx, "transact", t)
	if err != nil {
		return nil, err
	}
	var outcomes []Outcome
	if err := json.Unmarshal(result, &outcomes); err != nil {
		return nil, fmt.Errorf("read answer of ovsdb-server: %w", err)
	}
	for _, o := range outcomes {
		if o.Error != "" {
			return nil, fmt.Errorf("transaction refused: %s: %s", o.Error, o.Details)
		}
	}
	return outcomes, nil
}

// Transact encodes a transaction and sends it.
func (c *Conn) Transact(ctx context.Context, database string, ops ...Op) ([]Outcome, error) {
	t, err := Prepare(database, ops...)
	if err != nil {
		return nil, err
	}
	return c.Send(ctx, t)
}
