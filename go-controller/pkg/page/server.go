package page

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

//go:embed assets
var assets embed.FS

// policy is the Content-Security-Policy of every answer: the page loads everything from this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Errors of Config.Allow and Config.Read.
var (
	// ErrUnauthenticated means that the user is not known.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrForbidden means that the user does not have permission.
	ErrForbidden = errors.New("forbidden")
)

// Facts is what is read from a cluster.
type Facts struct {
	Snapshot explain.Snapshot
	// Events are the Events that ovnkube wrote about objects of the features.
	Events []*corev1.Event
}

// Config is the configuration of a Server.
type Config struct {
	// Read reads the cluster. Its error wraps ErrForbidden if the caller has no permission to read it.
	Read func(context.Context) (Facts, error)
	// Allow returns nil if the sender of a request may see the cluster's data, and otherwise an error that wraps
	// ErrUnauthenticated or ErrForbidden. The page itself contains no such data and is served to everybody.
	Allow func(*http.Request) error
	// Hosts are the accepted values of the Host header; nil for any. This protects against DNS rebinding: somebody
	// else's page whose name resolves to this server sends another value.
	Hosts []string
	// MaxAge is the maximum age of the snapshot that is used for answers.
	MaxAge time.Duration
	// Now is the clock.
	Now func() time.Time
}

// Server serves the page and answers its requests.
type Server struct {
	config Config
	mux    *http.ServeMux
	cache  cache
}

// New returns a server. It reads nothing until it gets a request.
func New(c Config) *Server {
	s := &Server{config: c, mux: http.NewServeMux(), cache: cache{config: c}}
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the directory is embedded
	}
	serve := http.FileServerFS(files)
	for _, name := range []string{"/{$}", "/page.css", "/page.js", "/icon.svg"} {
		s.mux.Handle("GET "+name, serve)
	}
	s.mux.Handle("GET /api/v1/status", s.answer(status))
	s.mux.Handle("GET /api/v1/objects", s.answer(objects))
	s.mux.Handle("GET /api/v1/timeline", s.answer(timeline))
	s.mux.Handle("GET /api/v1/explain/{kind}", s.answer(explained))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, http.StatusMethodNotAllowed, "nothing can be changed here: only GET is answered")
			return
		}
		fail(w, http.StatusNotFound, "there is nothing here")
	})
	return s
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "X-Frame-Options": "DENY",
		"Cache-Control": "no-store",
	} {
		w.Header().Set(name, value)
	}
	if s.config.Hosts != nil && !slices.Contains(s.config.Hosts, r.Host) {
		fail(w, http.StatusMisdirectedRequest, "this is not the requested host")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// answer serves what ask returns about the cluster, to those who have permission.
func (s *Server) answer(ask func(*view, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.config.Allow(r); err != nil {
			code := http.StatusInternalServerError
			switch {
			case errors.Is(err, ErrUnauthenticated):
				code = http.StatusUnauthorized
				w.Header().Set("WWW-Authenticate", "Bearer")
			case errors.Is(err, ErrForbidden):
				code = http.StatusForbidden
			}
			refuse(w, code, err)
			return
		}
		v, err := s.cache.get(r.Context())
		switch {
		case errors.Is(err, ErrForbidden):
			refuse(w, http.StatusForbidden, err)
			return
		case err != nil:
			fail(w, http.StatusBadGateway, err.Error())
			return
		}
		a, err := ask(v, r)
		var wrong *requestError
		switch {
		case errors.Is(err, explain.ErrNotFound), errors.Is(err, explain.ErrDisabled):
			fail(w, http.StatusNotFound, err.Error())
		case errors.As(err, &wrong):
			fail(w, http.StatusBadRequest, err.Error())
		case err != nil:
			fail(w, http.StatusInternalServerError, err.Error())
		default:
			write(w, http.StatusOK, a)
		}
	})
}

// failure is the JSON form of an error.
type failure struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Message    string `json:"message"`
}

func fail(w http.ResponseWriter, code int, message string) {
	write(w, code, failure{explain.APIVersion, "Error", message})
}

// refuse writes why a request is refused; the status code says that it is.
func refuse(w http.ResponseWriter, code int, err error) {
	message := err.Error()
	for _, known := range []error{ErrUnauthenticated, ErrForbidden} {
		message = strings.TrimPrefix(message, known.Error()+": ")
	}
	fail(w, code, message)
}

func write(w http.ResponseWriter, code int, a any) {
	if text, ok := a.(plain); ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		_, _ = w.Write(text) // if it fails, the client is gone
		return
	}
	data, err := json.Marshal(a)
	if err != nil {
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data) // likewise
}

// LoopbackHosts returns the values of the Host header in requests to a loopback address.
func LoopbackHosts(port string) []string {
	var hosts []string
	for _, h := range []string{"localhost", "127.0.0.1", "::1"} {
		hosts = append(hosts, net.JoinHostPort(h, port))
	}
	return hosts
}
