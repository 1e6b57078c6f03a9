package kube

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/tcp"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	// minRetryDelay and maxRetryDelay are the initial and the maximum delay before a request
	// is retried.
	minRetryDelay = 200 * time.Millisecond
	maxRetryDelay = 2 * time.Second
	// abandoned is after how long without a request it is certain that an informer has stopped. A failing
	// one repeats its requests at least every minute.
	abandoned = 3 * time.Minute
)

// unacknowledged is how long the API server may acknowledge nothing before a connection to it is broken.
const unacknowledged = 5 * time.Second

// NoticeOutages lets clients continue soon after the network to the API server was interrupted, or the server was lost.
func NoticeOutages(rc *rest.Config) { rc.Dial = tcp.Dialer(unacknowledged).DialContext }

// RetryInformers lets informers continue soon after the API server was unreachable. Their own
// retry delays grow to a minute, and stay that long for minutes after an outage: a
// pod created in that time would have no network for as long.
func RetryInformers(rc *rest.Config) {
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return retryTransport{next, &unlisted{}} })
}

// retryTransport retries requests of informers until they are answered.
type retryTransport struct {
	next     http.RoundTripper
	unlisted *unlisted
}

func (p retryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := p.try(r)
	if err == nil || !isContinuation(r) {
		return response, err
	}
	klog.InfoS("The API server cannot be reached, trying again", "path", r.URL.Path, "err", err)
	for wait := minRetryDelay; err != nil; wait = min(2*wait, maxRetryDelay) {
		// Jitter, so that the nodes retry at different times.
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-r.Context().Done():
			timer.Stop()
			p.unlisted.forget(r.URL.Path) // the informer has stopped: nobody waits for an answer any more
			return nil, err
		case <-timer.C:
		}
		response, err = p.try(r)
	}
	return response, nil
}

func (p retryTransport) try(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || !isInformerRequest(r) {
		return p.next.RoundTrip(r)
	}
	p.unlisted.begin(r.URL.Path)
	response, err := p.next.RoundTrip(r)
	p.unlisted.end(r, response, err)
	return response, err
}

// isInformerRequest reports whether a request comes from an informer: a watch or a list.
func isInformerRequest(r *http.Request) bool {
	query := r.URL.Query()
	return query.Get("watch") != "" || query.Has("resourceVersion")
}

// unlisted are the kinds, by path, for which the API server does not answer requests of
// informers.
type unlisted struct {
	mu    sync.Mutex
	kinds map[string]*unlistedKind
}

// unlistedKind is the wait for a kind, if there is one. mu of unlisted protects the other fields.
type unlistedKind struct {
	waits.Lost
	requests int         // which are not answered yet
	forget   *time.Timer // set when there are none
}

// begin records a request.
func (u *unlisted) begin(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	kind := u.kinds[path]
	if kind == nil {
		kind = &unlistedKind{}
		if u.kinds == nil {
			u.kinds = map[string]*unlistedKind{}
		}
		u.kinds[path] = kind
	}
	kind.requests++
	if kind.forget != nil {
		kind.forget.Stop()
	}
}

// end records the answer to a request, if somebody still waits for it.
func (u *unlisted) end(r *http.Request, response *http.Response, err error) {
	// StatusGone is not an error: the informer then lists again.
	if err == nil && response.StatusCode >= http.StatusBadRequest && response.StatusCode != http.StatusGone {
		err = errors.New(response.Status)
	}
	path := r.URL.Path
	u.mu.Lock()
	defer u.mu.Unlock()
	kind := u.kinds[path]
	if r.Context().Err() == nil {
		kind.Set(waits.Wait{Part: "informers", Object: path, For: "an answer of the API server", Reason: waits.ReasonAPIServer}, err)
	}
	// An informer that is stopped between two requests does not say so.
	if kind.requests--; kind.requests == 0 {
		kind.forget = time.AfterFunc(abandoned, func() { u.forget(path) })
	}
}

// forget ends the wait for a kind, unless there is a new request.
func (u *unlisted) forget(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if kind := u.kinds[path]; kind != nil && kind.requests == 0 {
		kind.Set(waits.Wait{}, nil)
		delete(u.kinds, path)
	}
}

// isContinuation reports whether a request continues an informer: a watch, or a list
// from a known version. Initial lists may fail, and the log reports that.
func isContinuation(r *http.Request) bool {
	query := r.URL.Query()
	version := query.Get("resourceVersion")
	return r.Method == http.MethodGet && (query.Get("watch") != "" || version != "" && version != "0")
}

// WrappedRoundTripper returns the wrapped round tripper, for callers that need its connections.
func (p retryTransport) WrappedRoundTripper() http.RoundTripper { return p.next }
