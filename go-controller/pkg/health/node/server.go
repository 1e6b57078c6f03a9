// Package node is the node's side of health: a gRPC health service (grpc.health.v1) that reports
// SERVING while the node can carry egress traffic, that is while its ovs-vswitchd and
// ovn-controller answer.
//
// Caller: pkg/app, if a port is configured; the master probes it with health.GRPC.
package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// Intervals of the checks. A check that exceeds its time limit has failed.
const (
	checkInterval = 200 * time.Millisecond
	checkLimit    = 150 * time.Millisecond
)

// Server answers health probes.
type Server struct {
	// Port is the TCP port, on all addresses; 0 for any, see the listening argument of Run.
	Port int
	// TLS is the TLS configuration, or nil.
	TLS *tls.Config
	// Checks must all return nil for the node to be serving. They return when their context is done
	// at the latest.
	Checks map[string]func(context.Context) error
}

// Run serves until ctx is done. listening, if not nil, is called with the address once the server
// listens.
func (s *Server) Run(ctx context.Context, listening func(net.Addr)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", s.Port))
	if err != nil {
		return fmt.Errorf("--egressip-node-healthcheck-port: %w", err)
	}
	var options []grpc.ServerOption
	if s.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.TLS)))
	}
	server, state := grpc.NewServer(options...), grpchealth.NewServer()
	state.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(server, state)
	if listening != nil {
		listening(listener.Addr())
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		s.watch(ctx, state)
		server.Stop()
	})
	defer wg.Wait()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve health probes: %w", err)
	}
	return nil
}

// watch runs the checks until ctx is done.
func (s *Server) watch(ctx context.Context, state *grpchealth.Server) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	serving, first := false, true
	for {
		err := s.check(ctx)
		if ctx.Err() != nil {
			return
		}
		if now := err == nil; now != serving || first {
			serving, first = now, false
			status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
			if now {
				status = grpc_health_v1.HealthCheckResponse_SERVING
			}
			state.SetServingStatus("", status)
			klog.InfoS("Health of this node changed", "serving", now, "reason", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Server) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	errs := make(chan error, len(s.Checks))
	for name, check := range s.Checks {
		go func() {
			err := panics.Catch("health", func() error { return check(ctx) })
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
			errs <- err
		}()
	}
	var all []error
	for range s.Checks {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
