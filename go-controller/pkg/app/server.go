package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

const (
	// headerTimeout is the timeout for reading a request's headers.
	headerTimeout = 10 * time.Second
	// shutdownTimeout is how long requests may take after the process was told to stop.
	shutdownTimeout = 3 * time.Second
)

// server is one HTTP listener.
type server struct {
	listener net.Listener
	http     *http.Server
}

// listen opens the configured listeners. They are open when it returns, so an address that is not
// available is an error at startup.
func listen(cfg config.Config, env *Env) ([]*server, error) {
	var out []*server
	for _, l := range []struct {
		address   string
		handler   http.Handler
		key, cert string
	}{
		{cfg.Metrics.BindAddress, fullHandler(env, cfg.Metrics.EnablePprof), cfg.Metrics.ServerKey, cfg.Metrics.ServerCert},
		{cfg.Kubernetes.HealthzBindAddress, healthHandler(env), "", ""},
	} {
		if l.address == "" {
			continue
		}
		s, err := newServer(l.address, l.handler, l.key, l.cert)
		if err != nil {
			for _, opened := range out {
				opened.listener.Close()
			}
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func newServer(address string, handler http.Handler, key, cert string) (*server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if key != "" {
		l = tls.NewListener(l, &tls.Config{
			MinVersion: tls.VersionTLS12,
			// Read for every connection: certificates are renewed while the process runs, and
			// metrics are only scraped a few times a minute.
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				c, err := tls.LoadX509KeyPair(cert, key)
				return &c, err
			},
		})
	}
	return &server{listener: l, http: &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}}, nil
}

// serve serves until ctx is done.
func (s *server) serve(ctx context.Context) error {
	klog.InfoS("Serving HTTP", "address", s.listener.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP on %s: %w", s.listener.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(end); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop HTTP on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

func healthHandler(env *Env) *http.ServeMux {
	mux := http.NewServeMux()
	// A process that answers is alive; conditions that a restart would not fix must not cause one.
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("/readyz", env.Ready)
	return mux
}

func fullHandler(env *Env, profiles bool) http.Handler {
	mux := healthHandler(env)
	mux.Handle("/metrics", env.Metrics.Handler())
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}
