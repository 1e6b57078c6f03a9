package kube

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	// again and againMost are the initial and the maximum delay before a request
	// is retried.
	again     = 200 * time.Millisecond
	againMost = 2 * time.Second
)

// Patient lets informers continue soon after the API server was unreachable. Their own
// retry delays grow to a minute, and stay that long for minutes after an outage: a
// pod created in that time would have no network for as long.
func Patient(rc *rest.Config) {
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next, &unlisted{}} })
}

// patient retries requests of informers until they are answered.
type patient struct {
	next     http.RoundTripper
	unlisted *unlisted
}

func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := p.try(r)
	if err == nil || !goesOn(r) {
		return response, err
	}
	klog.InfoS("The API server cannot be reached, trying again", "path", r.URL.Path, "err", err)
	for wait := again; err != nil; wait = min(2*wait, againMost) {
		// Jitter, so that the nodes retry at different times.
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-r.Context().Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
		response, err = p.try(r)
	}
	return response, nil
}

func (p patient) try(r *http.Request) (*http.Response, error) {
	response, err := p.next.RoundTrip(r)
	if r.Method == http.MethodGet && informs(r) && r.Context().Err() == nil {
		p.unlisted.note(r.URL.Path, response, err)
	}
	return response, err
}

// informs reports whether a request comes from an informer: a watch or a list.
func informs(r *http.Request) bool {
	query := r.URL.Query()
	return query.Get("watch") != "" || query.Has("resourceVersion")
}

// unlisted are the kinds, by path, for which the API server does not answer requests of
// informers.
type unlisted struct {
	mu    sync.Mutex
	kinds map[string]*waits.Lost
}

func (u *unlisted) note(path string, response *http.Response, err error) {
	u.mu.Lock()
	kind := u.kinds[path]
	if kind == nil {
		kind = &waits.Lost{}
		if u.kinds == nil {
			u.kinds = map[string]*waits.Lost{}
		}
		u.kinds[path] = kind
	}
	u.mu.Unlock()
	// StatusGone is not an error: the informer then lists again.
	if err == nil && response.StatusCode >= http.StatusBadRequest && response.StatusCode != http.StatusGone {
		err = errors.New(response.Status)
	}
	kind.Set(waits.Wait{Part: "informers", Object: path, For: "an answer of the API server", Reason: waits.ReasonAPIServer}, err)
}

// goesOn reports whether a request continues an informer: a watch, or a list
// from a known version. Initial lists may fail, and the log reports that.
func goesOn(r *http.Request) bool {
	query := r.URL.Query()
	version := query.Get("resourceVersion")
	return r.Method == http.MethodGet && (query.Get("watch") != "" || version != "" && version != "0")
}

// WrappedRoundTripper returns the wrapped round tripper, for callers that need its connections.
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.next }
