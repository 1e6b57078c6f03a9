package node

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestPortInUse: the error names the option.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = (&Server{Port: l.Addr().(*net.TCPAddr).Port}).Run(t.Context(), nil)
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), "--egressip-node-healthcheck-port: ") {
		t.Errorf("%v", err)
	}
}

// TestChecks: a check that fails or hangs is reported within half a second, and so is recovery.
func TestChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails, hangs atomic.Bool
		s := &Server{Checks: map[string]func(context.Context) error{
			"fine": func(context.Context) error { return nil },
			"odd": func(ctx context.Context) error {
				switch {
				case fails.Load():
					return errors.New("gone")
				case hangs.Load():
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			},
		}}
		state := grpchealth.NewServer()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.watch(ctx, state)
		}()
		expect := func(what string, want grpc_health_v1.HealthCheckResponse_ServingStatus) {
			t.Helper()
			<-time.After(500 * time.Millisecond)
			got, err := state.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err != nil || got.GetStatus() != want {
				t.Errorf("%s: %v, %v", what, got.GetStatus(), err)
			}
		}
		expect("all are well", grpc_health_v1.HealthCheckResponse_SERVING)
		fails.Store(true)
		expect("one fails", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		fails.Store(false)
		expect("all are well again", grpc_health_v1.HealthCheckResponse_SERVING)
		hangs.Store(true)
		expect("one hangs", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		cancel()
		<-ended
	})
}
