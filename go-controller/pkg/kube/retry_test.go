package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// outage is an API server that is unreachable until a given time.
type outage struct {
	until    time.Time
	attempts int
}

var errRefused = errors.New("connection refused")

func (o *outage) RoundTrip(*http.Request) (*http.Response, error) {
	o.attempts++
	if time.Now().Before(o.until) {
		return nil, errRefused
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func request(ctx context.Context, t *testing.T, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "https://api"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPatient: an informer's request is answered soon after an outage, however long it
// was, while other requests fail at once.
func TestPatient(t *testing.T) {
	const long = 10 * time.Minute
	for _, tc := range []struct {
		method, path string
		waits        bool
	}{
		{http.MethodGet, "/api/v1/pods?resourceVersion=7&watch=true", true},
		{http.MethodGet, "/api/v1/pods?resourceVersion=7", true},
		{http.MethodGet, "/api/v1/pods?resourceVersion=0", false},
		{http.MethodGet, "/api/v1/pods", false},
		{http.MethodGet, "/api/v1/namespaces/a/pods/b", false},
		{http.MethodPatch, "/api/v1/nodes/a?resourceVersion=7", false},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := time.Now().Add(long)
				server := &outage{until: over}
				response, err := retryTransport{server, &unlisted{}}.RoundTrip(request(t.Context(), t, tc.method, tc.path))
				if !tc.waits {
					if !errors.Is(err, errRefused) || server.attempts != 1 {
						t.Errorf("after %d attempts: %v", server.attempts, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := response.Body.Close(); err != nil {
					t.Error(err)
				}
				if late := time.Since(over); late > maxRetryDelay {
					t.Errorf("answered %s after the outage", late)
				}
				if most := int(2*long/maxRetryDelay) + 10; server.attempts > most {
					t.Errorf("%d attempts, want %d at most", server.attempts, most)
				}
			})
		})
	}
}

// TestRefusedListsAreTold: the kinds that the API server does not list, and the reasons, are reported until it
// does.
func TestRefusedListsAreTold(t *testing.T) {
	refused := map[string]bool{"/apis/k8s.ovn.org/v1/egressips": true}
	p := retryTransport{answers(func(r *http.Request) int {
		if refused[r.URL.Path] {
			return http.StatusNotFound
		}
		return http.StatusOK
	}), &unlisted{}}
	told := func() string {
		for _, path := range []string{"/apis/k8s.ovn.org/v1/egressips", "/api/v1/namespaces"} {
			response, err := p.RoundTrip(request(t.Context(), t, http.MethodGet, path+"?resourceVersion=0"))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
		}
		var all []string
		for _, w := range waits.All() {
			if w.Object == "/apis/k8s.ovn.org/v1/egressips" || w.Object == "/api/v1/namespaces" { // others belong to other tests
				all = append(all, w.Reason+" "+w.String())
			}
		}
		return strings.Join(all, "\n")
	}
	const want = `WaitingForAPIServer informers "/apis/k8s.ovn.org/v1/egressips" waits for an answer of the API server: 404 Not Found (since `
	if got := told(); !strings.HasPrefix(got, want) || strings.Contains(got, "namespaces") {
		t.Errorf("told: %q, want %q", got, want)
	}
	clear(refused)
	if got := told(); got != "" {
		t.Errorf("told of what is answered: %q", got)
	}
}

// answers answers with a status.
type answers func(*http.Request) int

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	code := a(r)
	return &http.Response{StatusCode: code, Status: fmt.Sprint(code, " ", http.StatusText(code)), Body: http.NoBody}, nil
}

// TestPatientEnds: a request ends with its context, and so does what is reported to wait for its answer.
func TestPatientEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		server := &outage{until: time.Now().Add(time.Hour)}
		began := time.Now()
		response, err := retryTransport{server, &unlisted{}}.RoundTrip(request(ctx, t, http.MethodGet, "/api/v1/namespaces/ended/pods?watch=true"))
		if err == nil {
			t.Errorf("answered: %v", response.Body.Close())
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it ended after %s", took)
		}
		for _, w := range waits.All() {
			if w.Object == "/api/v1/namespaces/ended/pods" {
				t.Errorf("after its informer has stopped: %s", w)
			}
		}
	})
}

// TestStoppedBetweenRequests: when an informer was stopped while it waited to repeat a request that had failed, nothing waits
// for an answer any more after a while. One that continues is reported all the time, also while a request takes long.
func TestStoppedBetweenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := false
		p := retryTransport{answers(func(*http.Request) int {
			if long {
				<-time.After(10 * time.Minute)
			}
			return http.StatusInternalServerError
		}), &unlisted{}}
		again := request(t.Context(), t, http.MethodGet, "/api/v1/namespaces/stopped/pods?resourceVersion=0")
		fails := func() {
			response, err := p.RoundTrip(again)
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
		}
		told := func() bool {
			return slices.ContainsFunc(waits.All(), func(w waits.Wait) bool { return w.Object == "/api/v1/namespaces/stopped/pods" })
		}
		for range 10 {
			fails()
			<-time.After(time.Minute)
			if !told() {
				t.Fatal("a request that fails again and again is not reported")
			}
		}
		long = true
		go fails()
		<-time.After(9 * time.Minute)
		if !told() {
			t.Error("a request that takes long is not reported")
		}
		<-time.After(2*time.Minute + abandoned)
		if told() {
			t.Error("it is still reported when nothing is requested any more")
		}
	})
}
