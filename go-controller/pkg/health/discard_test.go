package health

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestDiscard probes addresses in a network namespace of its own: a port on which nobody listens,
// one on which somebody listens, an address that does not answer, and one without a route.
func TestDiscard(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("there", "peer")
	ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "there")
	// On the loopback, which has a carrier immediately: without one an IPv6 address is not
	// reachable yet.
	ns.Run("ip", "-6", "addr", "add", "2001:db8::1/128", "dev", "lo")
	// A neighbour that never answers: packets leave and nothing comes back.
	ns.Run("ip", "neigh", "add", "192.0.2.9", "lladdr", "02:00:00:00:00:09", "dev", "there")

	// Dialing stays on this thread, the only one in the namespace: with a literal
	// address net.Dialer connects on the calling goroutine.
	probe := func(addr string, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return Discard{}.Probe(ctx, "n1", netip.MustParseAddr(addr))
	}
	for _, addr := range []string{"127.0.0.1", "::1", "192.0.2.1", "2001:db8::1"} {
		if err := probe(addr, 20*time.Second); err != nil {
			t.Errorf("%s, where nobody listens: %v", addr, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := probe("127.0.0.1", 20*time.Second); err != nil {
		t.Errorf("a listener: %v", err)
	}
	if err := probe("192.0.2.9", 100*time.Millisecond); err == nil || errors.Is(err, ErrFault) {
		t.Errorf("silence: %v, want an error that is no fault", err)
	}
	for _, addr := range []string{"198.51.100.1", "2001:db8:1::1"} {
		if err := probe(addr, 20*time.Second); !errors.Is(err, ErrFault) {
			t.Errorf("%s, without a route: %v, want a fault", addr, err)
		}
	}
}
