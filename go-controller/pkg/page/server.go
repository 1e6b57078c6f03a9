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

// policy is the Content-Security-Policy of every answer: what the page needs is its own.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Errors of Config.Allow and Config.Read.
var (
	// ErrUnauthenticated: it is not known who asks.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrForbidden: who asks may not.
	ErrForbidden = errors.New("forbidden")
)

// Facts are what is read of a cluster.
type Facts struct {
	Snapshot explain.Snapshot
	// Events are those that ovnkube wrote about objects of the features.
	Events []*corev1.Event
}

// Config is what a Server needs.
type Config struct {
	// Read reads the cluster. Its error wraps ErrForbidden where those who ask may not
	// read it.
	Read func(context.Context) (Facts, error)
	// Allow reports whether who sends a request may see what the cluster says; its error
	// wraps ErrUnauthenticated or ErrForbidden where not. The page itself, which says
	// nothing, is for everybody.
	Allow func(*http.Request) error
	// Hosts are the values of the Host header that are answered; nil for any. A page of
	// somebody else whose name is made to lead here has another one.
	Hosts []string
	// MaxAge is how old the snapshot may be that answers.
	MaxAge time.Duration
	// Now is the clock.
	Now func() time.Time
}

// Server answers the requests of the page.
type Server struct {
	config Config
	mux    *http.ServeMux
	cache  cache
}

// New returns a server. It reads nothing until it is asked.
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
		fail(w, http.StatusMisdirectedRequest, "this is not the host that was asked for")
		return
	}
	s.mux.ServeHTTP(w, r)
}

// answer answers with what ask returns about the cluster, to whom it may concern.
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

// failure is the answer where there is no other.
type failure struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Message    string `json:"message"`
}

func fail(w http.ResponseWriter, code int, message string) {
	write(w, code, failure{explain.APIVersion, "Error", message})
}

// refuse says why somebody sees nothing; that they do not, the status says.
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
		_, _ = w.Write(text) // who asked is gone, if it fails
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

// LoopbackHosts returns the values that the Host header has for who asks at a loopback
// address.
func LoopbackHosts(port string) []string {
	var hosts []string
	for _, h := range []string{"localhost", "127.0.0.1", "::1"} {
		hosts = append(hosts, net.JoinHostPort(h, port))
	}
	return hosts
}
