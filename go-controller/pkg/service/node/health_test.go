package node

import (
	"net/http"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/idleconn"
)

// TestIdleConnections: a client of a health port cannot keep a connection for ever.
func TestIdleConnections(t *testing.T) {
	idleconn.Check(t, func() *http.Server { return newHealthPort(service.Health{Endpoints: 1}).server }, "GET / HTTP/1.1\r\nHost: node\r\n\r\n")
}
