package authn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wants fails the test if a request of a token is not answered with a status.
func wants(t *testing.T, r *Reviewer, token, verb string, status int) {
	t.Helper()
	if got, body := send(r, traceOf(verb), Header, token); got != status {
		t.Errorf("%s of %s is answered %d %q, want %d", verb, token, got, body, status)
	}
}

// TestOutage: while the API server cannot be asked, those are let in whom it has let in within the last hour, and nobody else.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		r := New(s, "trace/node1").Remember(time.Minute)
		wants(t, r, "t-ann", "get", 200)
		wants(t, r, "t-ann", "create", 403)
		wants(t, r, "t-bob", "get", 403)
		wants(t, r, "t-eve", "get", 401)
		s.set(func() { s.down = errors.New("no answer") })
		for range 29 {
			<-time.After(2 * time.Minute)
			wants(t, r, "t-ann", "get", 200)
			wants(t, r, "t-ann", "create", 503)
			wants(t, r, "t-bob", "get", 503)
			wants(t, r, "t-eve", "get", 503)
			wants(t, r, "t-new", "get", 503)
		}
		<-time.After(2 * time.Minute)
		wants(t, r, "t-ann", "get", 503)
	})
}

func TestOutageWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		r := New(s, "trace/node1")
		wants(t, r, "t-ann", "get", 200)
		s.set(func() { s.down = errors.New("no answer") })
		<-time.After(lifetime)
		wants(t, r, "t-ann", "get", 503)
	})
}

// TestRevokedAfterOutage: an answer that was used during an outage is not used any longer than others when it is over, nor
// in the next one if it has been revoked.
func TestRevokedAfterOutage(t *testing.T) {
	for name, test := range map[string]struct {
		revoke func(*apiServer)
		status int
	}{
		"token":      {func(s *apiServer) { s.users = nil }, 401},
		"permission": {func(s *apiServer) { s.may = nil }, 403},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer()
				r := New(s, "trace/node1").Remember(time.Minute)
				wants(t, r, "t-ann", "get", 200)
				s.set(func() { s.down = errors.New("no answer") })
				<-time.After(time.Minute)
				wants(t, r, "t-ann", "get", 200)
				s.set(func() { s.down = nil; test.revoke(s) })
				<-time.After(time.Minute)
				wants(t, r, "t-ann", "get", test.status)
				s.set(func() { s.down = errors.New("no answer") })
				<-time.After(time.Minute)
				wants(t, r, "t-ann", "get", 503)
			})
		})
	}
}

// TestRefusedReview: an API server that refuses to review has answered.
func TestRefusedReview(t *testing.T) {
	reviews := schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}
	for status, why := range map[int]error{
		200: apierrors.NewServiceUnavailable("starting"),
		503: apierrors.NewForbidden(reviews, "", errors.New("no permission")),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newAPIServer()
			r := New(s, "trace/node1").Remember(time.Minute)
			wants(t, r, "t-ann", "get", 200)
			s.set(func() { s.down = why })
			<-time.After(time.Minute)
			wants(t, r, "t-ann", "get", status)
		})
	}
}

// TestSilentAPIServer: Prometheus, which waits ten seconds, gets its metrics from the first request on.
func TestSilentAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(newAPIServer(), "trace/node1").Remember(time.Minute)
		wants(t, r, "t-ann", "get", 200)
		<-time.After(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := r.ask(ctx, func(ctx context.Context) error {
			start := time.Now()
			<-ctx.Done()
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("one of two questions takes %s", took)
			}
			return ctx.Err()
		}); !errors.As(err, new(unreachable)) {
			t.Errorf("it is not seen as unreachable: %v", err)
		}
	})
}

// TestNobodyFakesAnOutage: who gives up, or has to wait because of others, cannot have an earlier answer used.
func TestNobodyFakesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		r := New(s, "trace/node1").Remember(time.Minute)
		wants(t, r, "t-ann", "get", 200)
		<-time.After(time.Minute)
		for range atOnce {
			r.slots <- struct{}{}
		}
		wants(t, r, "t-ann", "get", 503)
		for range atOnce {
			<-r.slots
		}
		gone, cancel := context.WithCancel(t.Context())
		if err := r.ask(gone, func(ctx context.Context) error { cancel(); return ctx.Err() }); err != nil {
			t.Errorf("the question ends with the request: %v", err)
		}
	})
}

// TestStrangersEvictNobody: tokens that the API server does not know do not displace one that it does.
func TestStrangersEvictNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		r := New(s, "trace/node1").Remember(time.Minute)
		wants(t, r, "t-ann", "get", 200)
		for i := range 2 * remembered {
			wants(t, r, fmt.Sprintf("t-%d", i), "get", 401)
		}
		<-time.After(time.Minute)
		s.set(func() { s.down = errors.New("no answer") })
		wants(t, r, "t-ann", "get", 200)
	})
}

// TestLaterQuestionAnsweredFirst: the answer to an earlier question does not replace that to a later one.
func TestLaterQuestionAnsweredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		a := newAnswers[int](func(allowed bool) bool { return allowed })
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = a.get(1, func() (bool, error) { <-answer; return true, nil })
		}()
		synctest.Wait()
		<-time.After(time.Second)
		_, _ = a.get(1, func() (bool, error) { return false, nil })
		close(answer)
		<-ended
		if allowed, err := a.get(1, func() (bool, error) { return false, errors.New("asked again") }); allowed || err != nil {
			t.Errorf("the later answer is forgotten: %v, %v", allowed, err)
		}
	})
}
