package kube

import (
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// again and againMost are how long a request waits before it is tried again, the first
	// time and at most.
	again     = 200 * time.Millisecond
	againMost = 2 * time.Second
)

// Patient has informers go on soon after the API server could not be reached. Their own
// pauses between attempts grow to a minute, and are as long for minutes after an outage: a
// pod that is made then has no network for as long.
func Patient(rc *rest.Config) {
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return patient{next} })
}

// patient tries requests of informers again and again, until they are answered.
type patient struct{ next http.RoundTripper }

func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := p.next.RoundTrip(r)
	if err == nil || !goesOn(r) {
		return response, err
	}
	klog.InfoS("The API server cannot be reached, trying again", "path", r.URL.Path, "err", err)
	for wait := again; err != nil; wait = min(2*wait, againMost) {
		// Those of all nodes come at different times.
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-r.Context().Done():
			timer.Stop()
			return nil, err
		case <-timer.C:
		}
		response, err = p.next.RoundTrip(r)
	}
	return response, nil
}

// goesOn tells whether a request is one by which an informer goes on: it watches, or lists
// from where it was. A first list fails, and the log says so.
func goesOn(r *http.Request) bool {
	query := r.URL.Query()
	version := query.Get("resourceVersion")
	return r.Method == http.MethodGet && (query.Get("watch") != "" || version != "" && version != "0")
}

// WrappedRoundTripper returns the one behind, for whoever looks for its connections.
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.next }
