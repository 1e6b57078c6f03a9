package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/authn"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

const (
	// headerTimeout is the timeout for reading a request's headers.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection stays open without a request: longer than between two scrapes or probes.
	idleTimeout = 2 * time.Minute
	// shutdownTimeout is how long requests may take after the process was told to stop.
	shutdownTimeout = 3 * time.Second
	// permissionAge is how long a permission to read metrics is remembered: every node is scraped several times a minute.
	permissionAge = time.Minute
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
	cert, err := metricsCertificate(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	for _, l := range []struct {
		option  string
		address string
		handler http.Handler
		cert    certificate
	}{
		{"--metrics-bind-address", cfg.Metrics.BindAddress, metricsHandler(env, cfg.Metrics), cert},
		{"--healthz-bind-address", cfg.Kubernetes.HealthzBindAddress, healthHandler(env.Ready, nil), nil},
	} {
		if l.address == "" {
			continue
		}
		s, err := newServer(l.option, l.address, l.handler, l.cert)
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

// certificate returns the certificate of a server; nil if it does not use TLS. It is called for every connection:
// certificates are renewed while the process runs, and these servers get only a few requests a minute.
type certificate func() (*tls.Certificate, error)

// certificateFiles returns the certificate in files.
func certificateFiles(key, cert string) certificate {
	if key == "" {
		return nil
	}
	return func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(cert, key)
		return &c, err
	}
}

// metricsCertificate returns the configured certificate. While its files do not exist or cannot be used, and if there is none,
// it is one that the process has signed itself: the kubelet, which does not verify certificates, asks for the health of the
// process at once, and would kill it if its probes failed. Who verifies the certificate refuses that one.
func metricsCertificate(m config.Metrics) (certificate, error) {
	files := certificateFiles(m.ServerKey, m.ServerCert)
	if files == nil && !m.Restricted() {
		return nil, nil
	}
	own, err := ownCertificate("ovnkube-metrics")
	if err != nil {
		return nil, err
	}
	var reported atomic.Value // what has been logged last: there are several connections a minute
	return func() (*tls.Certificate, error) {
		if files == nil {
			return &own, nil
		}
		c, err := files()
		if err == nil {
			reported.Store("")
			return c, nil
		}
		if why := err.Error(); !errors.Is(err, fs.ErrNotExist) && reported.Swap(why) != why {
			klog.ErrorS(err, "Cannot use the certificate for metrics, presenting one that this process has signed itself", "file", m.ServerCert)
		}
		return &own, nil
	}, nil
}

// listenAt opens a listener at the address of an option, which an error names.
func listenAt(option, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	return l, nil
}

func newServer(option, address string, handler http.Handler, cert certificate) (*server, error) {
	l, err := listenAt(option, address)
	if err != nil {
		return nil, err
	}
	if cert != nil {
		l = tls.NewListener(l, &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert() },
		})
	}
	return &server{listener: l, http: httpServer(handler)}, nil
}

// httpServer returns a server whose clients cannot keep connections open without using them.
func httpServer(handler http.Handler) *http.Server {
	return &http.Server{ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The server reads a body that nobody asked for, at the end or before a long answer. There is no timeout for all
		// of a request, since it would end those for profiles, which take long.
		limit := func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout)) }
		if r.ContentLength != 0 {
			limit()
		}
		handler.ServeHTTP(w, r)
		limit()
	})}
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

// healthHandler serves what a kubelet asks for, and the verbose answer about readiness, which names objects, if there is a
// handler for that.
func healthHandler(ready, verbose http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	// A process that answers is alive; conditions that a restart would not fix must not cause one.
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isVerbose(r):
			ready.ServeHTTP(w, r)
		case verbose != nil:
			verbose.ServeHTTP(w, r)
		default:
			http.Error(w, "the verbose answer is at --metrics-bind-address", http.StatusNotFound)
		}
	})
	return mux
}

// metricsHandler serves everything. If the address is not a loopback address, only what a kubelet asks for is served to
// everybody.
func metricsHandler(env *Env, m config.Metrics) http.Handler {
	restricted := func(h http.Handler) http.Handler { return h }
	if m.Restricted() {
		reviews := authn.New(env.Kube).Remember(permissionAge)
		restricted = func(h http.Handler) http.Handler { return reviews.Guard(pathOf, h) }
	}
	mux := healthHandler(env.Ready, restricted(env.Ready))
	mux.Handle("/metrics", restricted(env.Metrics.Handler()))
	if m.EnablePprof {
		for path, handler := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			mux.Handle("/debug/pprof/"+path, restricted(handler))
		}
	}
	return mux
}

// pathOf returns the access that a request needs, as the API server defines it for paths that are not resources. Every user
// may get /readyz by default, so the verbose answer needs the same permission as metrics.
func pathOf(r *http.Request) (authn.Access, error) {
	path := r.URL.Path
	if path == "/readyz" {
		path = "/metrics"
	}
	return authn.Access{Verb: strings.ToLower(r.Method), Path: path}, nil
}
