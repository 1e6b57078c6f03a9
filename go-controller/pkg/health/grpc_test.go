package health_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	healthnode "github.com/ovnkube/ovnkube/go-controller/pkg/health/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// node runs a health server on a port until stop is called.
func node(t *testing.T, port int, check func(context.Context) error) (listening int, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &healthnode.Server{Port: port, Checks: map[string]func(context.Context) error{"switch": check}}
	at, done := make(chan int, 1), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(a net.Addr) { at <- a.(*net.TCPAddr).Port }) }()
	select {
	case listening = <-at:
	case err := <-done:
		t.Fatal(err)
	}
	return listening, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	}
}

// TestGRPC: a node answers while its components are alive; a session that was cut reconnects by
// itself, within the time that a node may be silent.
func TestGRPC(t *testing.T) {
	var broken atomic.Bool
	check := func(context.Context) error {
		if broken.Load() {
			return errors.New("no answer")
		}
		return nil
	}
	port, stop := node(t, 0, check)
	prober := health.NewGRPC(uint16(port), nil)
	defer prober.Close()
	addr := netip.MustParseAddr("127.0.0.1")
	probe := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return prober.Probe(ctx, "n", addr)
	}
	until := func(what string, ok bool) {
		t.Helper()
		eventually.True(t, "a node that is "+what, func() bool { return (probe() == nil) == ok })
	}
	until("well", true)
	broken.Store(true)
	until("broken", false)
	broken.Store(false)
	until("well again", true)
	stop()
	if probe() == nil {
		t.Error("a node that is not there answers")
	}
	_, stop = node(t, port, check)
	defer stop()
	until("back", true)
}
