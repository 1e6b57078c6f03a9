package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/idleconn"
)

// TestIdleConnections: a client cannot keep a connection for ever, whether it sends no request any more or announces a body that
// it does not send.
func TestIdleConnections(t *testing.T) {
	const body = "POST / HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\n"
	for name, c := range map[string]struct {
		request string
		answer  int // its length: a long one is sent before the handler returns
	}{
		"after a request":               {"GET / HTTP/1.1\r\nHost: node\r\n\r\n", 10},
		"without the body":              {body, 10},
		"without the body, long answer": {body, 10000},
	} {
		t.Run(name, func(t *testing.T) {
			idleconn.Check(t, func() *http.Server {
				return httpServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", c.answer)) }))
			}, c.request)
		})
	}
}
