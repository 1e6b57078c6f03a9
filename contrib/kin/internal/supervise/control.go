package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// ControlSocket is the socket on which a machine's first process takes requests, within the
// machine.
const ControlSocket = "/run/kin/control.sock"

// request is one line of JSON; the answer is another line, after which the connection is closed.
type request struct {
	// Verb is status, start, stop, restart or kill.
	Verb string `json:"verb"`
	Unit string `json:"unit,omitempty"`
}

type answer struct {
	Error    string   `json:"error,omitempty"`
	Statuses []Status `json:"statuses,omitempty"`
}

// Serve answers requests on a unix socket until ctx ends.
func (s *Supervisor) Serve(ctx context.Context, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return fmt.Errorf("make socket directory: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen for requests: %w", err)
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept request: %w", err)
		}
		go s.serve(conn)
	}
}

func (s *Supervisor) serve(conn net.Conn) {
	defer conn.Close()
	var q request
	if err := json.NewDecoder(conn).Decode(&q); err != nil {
		return // the caller is gone
	}
	var a answer
	if q.Verb != "status" {
		if err := s.Do(q.Verb, q.Unit); err != nil {
			a.Error = err.Error()
		}
	}
	a.Statuses = s.Statuses()
	_ = json.NewEncoder(conn).Encode(a) // likewise
}

// Call sends a request to a machine's first process and returns the units'
// statuses after it. socket is the path as the caller sees it.
func Call(socket, verb, unit string) ([]Status, error) {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("reach the machine's first process: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, fmt.Errorf("limit request: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(request{Verb: verb, Unit: unit}); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	var a answer
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if a.Error != "" {
		return a.Statuses, errors.New(a.Error)
	}
	return a.Statuses, nil
}
