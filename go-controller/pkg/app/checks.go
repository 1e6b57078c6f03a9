package app

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// Checks decides whether the process is ready: it is if every check passes. It is safe for
// concurrent use.
type Checks struct {
	mu     sync.Mutex
	checks map[string]func() error
}

// NewChecks returns an empty Checks, which is ready.
func NewChecks() *Checks { return &Checks{checks: map[string]func() error{}} }

// Add adds a check, or replaces the one with that name. f must return quickly: it reports what
// others found out, and does no I/O.
func (c *Checks) Add(name string, f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks[name] = f
}

// Gate adds a check that fails until open is called.
func (c *Checks) Gate(name string) (open func()) {
	var opened atomic.Bool
	c.Add(name, func() error {
		if !opened.Load() {
			return errors.New("starting")
		}
		return nil
	})
	return func() { opened.Store(true) }
}

// maxNamed is how many failures, and how many waits, are listed at most.
const maxNamed = 100

// named returns a line for each failure, or for each wait.
func named[T fmt.Stringer](what string, all []T) []string {
	var lines []string
	for i, x := range all {
		if i == maxNamed {
			return append(lines, fmt.Sprintf("%s: %d more", what, len(all)-i))
		}
		lines = append(lines, what+": "+strings.ReplaceAll(x.String(), "\n", " "))
	}
	return lines
}

// Results runs every check.
func (c *Checks) Results() map[string]error {
	c.mu.Lock()
	checks := make(map[string]func() error, len(c.checks))
	for name, f := range c.checks {
		checks[name] = f
	}
	c.mu.Unlock()
	out := make(map[string]error, len(checks))
	for name, f := range checks {
		out[name] = panics.Catch("readiness", f)
	}
	return out
}

func isVerbose(r *http.Request) bool { return r.URL.Query().Has("verbose") }

// ServeHTTP answers 200 if every check passes and 503 otherwise, with one line per check. A single
// object that keeps failing does not make the process unready, because others are served: with
// ?verbose the answer also lists what fails and why, and everything that is waited for.
func (c *Checks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var lines []string
	status := http.StatusOK
	for name, err := range c.Results() {
		if err != nil {
			status = http.StatusServiceUnavailable
			lines = append(lines, fmt.Sprintf("%s: %v", name, err))
		} else {
			lines = append(lines, name+": ok")
		}
	}
	slices.Sort(lines)
	if isVerbose(r) {
		lines = append(append(lines, named("failing", queue.Failures())...), named("waiting", waits.All())...)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, strings.Join(append(lines, map[bool]string{true: "ready", false: "not ready"}[status == http.StatusOK]), "\n"))
}
