package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/tcp"
)

// reconnect is the maximum delay before a broken session is reconnected: less than a node may be
// silent.
const reconnect = 200 * time.Millisecond

// handshake is the timeout for opening a session, including TLS. It is longer than reconnect, since a master whose own network
// was interrupted connects to all nodes at once.
const handshake = 2 * time.Second

// unacknowledged is how long a session may get no acknowledgement from the node before it is broken: a node that
// comes back after an outage answers in a new one.
const unacknowledged = time.Second

// GRPC is the Prober that uses the health service of the nodes, over one persistent session per
// address. A broken session is reconnected; it is silence, not the broken session, that makes a
// node dead. It is safe for concurrent use.
type GRPC struct {
	port uint16
	tls  *tls.Config

	mu       sync.Mutex
	sessions map[netip.Addr]*grpc.ClientConn
}

// NewGRPC returns a prober of a port; if t is not nil it uses TLS.
func NewGRPC(port uint16, t *tls.Config) *GRPC {
	return &GRPC{port: port, tls: t, sessions: map[netip.Addr]*grpc.ClientConn{}}
}

// Probe implements Prober.
func (g *GRPC) Probe(ctx context.Context, node string, addr netip.Addr) error {
	conn, err := g.session(addr)
	if err != nil {
		return fmt.Errorf("probe node %s: %w: %w", node, ErrFault, err)
	}
	reply, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("probe node %s: %w", node, err)
	}
	if reply.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("probe node %s: it says %s", node, reply.GetStatus())
	}
	return nil
}

func (g *GRPC) session(addr netip.Addr) (*grpc.ClientConn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if conn, ok := g.sessions[addr]; ok {
		return conn, nil
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, reconnect)
		defer cancel()
		return tcp.Dialer(unacknowledged).DialContext(ctx, "tcp", address)
	}
	transport := insecure.NewCredentials()
	if g.tls != nil {
		transport = credentials.NewTLS(g.tls)
	}
	conn, err := grpc.NewClient("passthrough:///"+netip.AddrPortFrom(addr, g.port).String(),
		grpc.WithTransportCredentials(transport), grpc.WithNoProxy(), grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnect / 4, Multiplier: 2, Jitter: 0.2, MaxDelay: reconnect},
			MinConnectTimeout: handshake,
		}))
	if err != nil {
		return nil, err
	}
	g.sessions[addr] = conn
	return conn, nil
}

// Close ends all sessions.
func (g *GRPC) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for addr, conn := range g.sessions {
		errs = append(errs, conn.Close())
		delete(g.sessions, addr)
	}
	return errors.Join(errs...)
}
