package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// Clients of health ports are outside of the cluster.
const (
	// requestTimeout is the timeout for reading a request, and for writing the answer.
	requestTimeout = 5 * time.Second
	// idleTimeout is how long a connection stays open without a request: longer than between two probes.
	idleTimeout = time.Minute
)

// healthServer serves the health ports of Services: 200 if the node has endpoints, 503 if
// it has none. Its methods are called by one goroutine at a time.
type healthServer struct {
	ports map[uint16]*healthPort
}

// healthPort serves one port; its Service and the number of endpoints may change.
type healthPort struct {
	server *http.Server

	mu     sync.Mutex
	health service.Health
}

func newHealthServer() *healthServer { return &healthServer{ports: map[uint16]*healthPort{}} }

// problem is a health port that cannot be served at present.
type problem struct {
	service.Health
	err error
}

// set opens and closes ports to match all exactly, and returns those that cannot be opened:
// the port is chosen by a user, and another process may have it.
func (h *healthServer) set(all []service.Health) []problem {
	want := map[uint16]service.Health{}
	for _, s := range all {
		want[s.Port] = s
	}
	for port, p := range h.ports {
		if _, ok := want[port]; !ok {
			_ = p.server.Close()
			delete(h.ports, port)
		}
	}
	var problems []problem
	for port, health := range want {
		if p, ok := h.ports[port]; ok {
			p.set(health)
			continue
		}
		p, err := listen(health)
		if err != nil {
			problems = append(problems, problem{health, err})
			continue
		}
		h.ports[port] = p
	}
	return problems
}

func (h *healthServer) close() { h.set(nil) }

func newHealthPort(health service.Health) *healthPort {
	p := &healthPort{health: health}
	p.server = &http.Server{Handler: p, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout}
	return p
}

func listen(health service.Health) (*healthPort, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(health.Port))))
	if err != nil {
		return nil, err
	}
	p := newHealthPort(health)
	go func() {
		if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "Health port ended", "port", health.Port)
		}
	}()
	return p, nil
}

func (p *healthPort) set(health service.Health) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health = health
}

// ServeHTTP answers as load balancers expect from any service proxy.
func (p *healthPort) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	health := p.health
	p.mu.Unlock()
	body, err := json.MarshalIndent(map[string]any{
		"service":             map[string]string{"namespace": health.Namespace, "name": health.Name},
		"localEndpoints":      health.Endpoints,
		"serviceProxyHealthy": true,
	}, "", "\t")
	if err != nil {
		panic(fmt.Sprintf("encode health: %v", err)) // plain values only
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(health.Endpoints))
	if health.Endpoints == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n'))
}
