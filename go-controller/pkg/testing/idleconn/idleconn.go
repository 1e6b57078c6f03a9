// Package idleconn checks that HTTP servers close connections that nobody uses.
//
// Callers: tests of app and service/node.
package idleconn

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// Check makes a request to a server, reads the answer, and fails the test if the connection is still open an hour later, by
// a clock that does not take that long.
func Check(t *testing.T, newServer func() *http.Server, request string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		ours, its := net.Pipe()
		go func() { _ = server.Serve(&listener{conn: its, closed: make(chan struct{})}) }()
		defer server.Close()
		if _, err := io.WriteString(ours, request); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(ours)
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Error(err)
		}
		if err := ours.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("it is still open after an hour: %v", err)
		}
	})
}

// listener is a listener with one connection.
type listener struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *listener) Close() error {
	close(l.closed)
	return nil
}
