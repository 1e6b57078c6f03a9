package ovsdb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ovn-org/libovsdb/ovsdb/serverdb"
)

// state is what a server says about one of its databases.
type state struct {
	Name      string                 `json:"name"`
	Model     serverdb.DatabaseModel `json:"model"`
	Leader    bool                   `json:"leader"`
	Connected bool                   `json:"connected"`
}

// stateWatch is a connection on which a server tells the state of a database, from its own database
// _Server, and answers probes. It does not use the client library, whose clients race when a server
// breaks the connection while it is being made: those that watch servers see them come and go.
type stateWatch struct {
	conn    net.Conn
	in      *json.Decoder
	answers chan struct{} // to probes
	lost    chan struct{} // closed when the connection ends

	mu  sync.Mutex
	out *json.Encoder
}

// message is a JSON-RPC request, notification or response.
type message struct {
	ID     any             `json:"id"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// sendTimeout bounds the time to write one message.
const sendTimeout = 5 * time.Second

// IDs of requests.
const (
	monitorID = "monitor"
	probeID   = "probe"
)

// watchState connects to a server and returns the state of a database. Later states are passed to
// changed.
func watchState(ctx context.Context, endpoint string, tlsConfig *tls.Config, database string, changed func(state)) (_ *stateWatch, now state, err error) {
	network, address, _ := strings.Cut(endpoint, ":")
	var conn net.Conn
	if network == "ssl" {
		conn, err = (&tls.Dialer{Config: tlsConfig}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, now, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	w := newStateWatch(conn)
	stop := context.AfterFunc(ctx, w.close)
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			w.close()
		}
	}()
	request := json.RawMessage(`["_Server", null, {"Database": {"columns": ["name", "model", "leader", "connected"]}}]`)
	if err := w.send(message{ID: monitorID, Method: "monitor", Params: request}); err != nil {
		return nil, now, fmt.Errorf("ask for the state of %s: %w", endpoint, err)
	}
	for {
		m, err := w.receive()
		if err != nil {
			return nil, now, fmt.Errorf("ask for the state of %s: %w", endpoint, err)
		}
		if m.ID != monitorID {
			continue
		}
		now, ok := stateIn(m.Result, database)
		if !ok {
			return nil, now, fmt.Errorf("%s has no database %s", endpoint, database)
		}
		go w.run(database, changed)
		return w, now, nil
	}
}

func newStateWatch(conn net.Conn) *stateWatch {
	return &stateWatch{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn), answers: make(chan struct{}, 8), lost: make(chan struct{})}
}

// run handles messages until the connection ends.
func (w *stateWatch) run(database string, changed func(state)) {
	defer close(w.lost)
	defer w.close()
	for {
		m, err := w.receive()
		switch {
		case err != nil:
			return
		case m.ID == probeID:
			select {
			case w.answers <- struct{}{}:
			default: // nobody waits any more
			}
		case m.Method == "update":
			var params []json.RawMessage // the monitor, and the changes
			if json.Unmarshal(m.Params, &params) != nil || len(params) != 2 {
				return
			}
			if now, ok := stateIn(params[1], database); ok {
				changed(now)
			}
		}
	}
}

// stateIn returns the state of a database in the initial rows of a monitor, or in its changes; false
// if there is none.
func stateIn(updates json.RawMessage, database string) (state, bool) {
	var tables struct {
		Database map[string]struct{ New *state }
	}
	if err := json.Unmarshal(updates, &tables); err != nil {
		return state{}, false
	}
	for _, row := range tables.Database {
		if row.New != nil && row.New.Name == database {
			return *row.New, true
		}
	}
	return state{}, false
}

func (w *stateWatch) send(m message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A hanging server's socket may be full.
	if err := w.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	return w.out.Encode(m)
}

// receive returns the next message, and answers the server's own probes.
func (w *stateWatch) receive() (m message, err error) {
	if err := w.in.Decode(&m); err != nil {
		return m, err
	}
	if m.Method == "echo" {
		return m, w.send(message{ID: m.ID, Result: m.Params})
	}
	return m, nil
}

// errSilent means that the server did not answer a probe in time.
var errSilent = errors.New("no answer")

// probe waits until the server has answered a probe.
func (w *stateWatch) probe(ctx context.Context, timeout time.Duration) error {
	if err := w.send(message{ID: probeID, Method: "echo", Params: json.RawMessage("[]")}); err != nil {
		return err
	}
	return w.answer(ctx, timeout)
}

// answer waits until the server has answered a probe that was sent before.
func (w *stateWatch) answer(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-w.answers:
		return nil
	case <-w.lost:
		return errLost
	case <-ctx.Done():
		return errSilent
	}
}

// close ends the connection.
func (w *stateWatch) close() { _ = w.conn.Close() }
