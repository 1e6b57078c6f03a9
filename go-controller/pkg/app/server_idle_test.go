package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleConnections: a client cannot keep a connection for ever.
func TestIdleConnections(t *testing.T) {
	t.Run("after a request", func(t *testing.T) { checkIdle(t, "GET / HTTP/1.1\r\nHost: node\r\n\r\n", 10) })
	t.Run("without the body", func(t *testing.T) { checkIdle(t, "POST / HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\n", 10) })
	t.Run("without the body, long answer", func(t *testing.T) {
		checkIdle(t, "POST / HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\n", 10000)
	})
}

func checkIdle(t *testing.T, request string, size int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := httpServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", size)) }))
		ours, its := net.Pipe()
		go func() { _ = server.Serve(&oneConn{conn: its, closed: make(chan struct{})}) }()
		defer server.Close()
		if _, err := io.WriteString(ours, request); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(ours)
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Error(err)
		}
		if err := ours.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("it is still open after an hour: %v", err)
		}
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

func (l *oneConn) Close() error {
	close(l.closed)
	return nil
}
