package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// apiServer knows tokens, by audience, and who may trace nodes.
type apiServer struct {
	*fake.Clientset
	mu             sync.Mutex
	users          map[string]string // by token
	audience       string            // of all tokens
	may            map[string]string // the only allowed verb, by user
	down           error
	tokens, access int // number of reviews
}

func newAPIServer() *apiServer {
	s := &apiServer{Clientset: fakeapi.NewClientset(), users: map[string]string{"t-ann": "ann", "t-bob": "bob"}, audience: "trace/node1",
		may: map[string]string{"ann": "get"}}
	s.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tokens++
		name, ok := s.users[review.Spec.Token]
		if ok && (len(review.Spec.Audiences) == 0 || slices.Contains(review.Spec.Audiences, s.audience)) {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{s.audience},
				User: authenticationv1.UserInfo{Username: name, Groups: []string{"people"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}}
		}
		return true, review, s.down
	})
	s.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.access++
		of := review.Spec.ResourceAttributes
		review.Status.Allowed = of != nil && of.Resource == "nodes" && of.Subresource == "trace" && of.Name == "node1" && s.may[review.Spec.User] == of.Verb &&
			slices.Equal(review.Spec.Groups, []string{"people"}) && len(review.Spec.Extra) == 1
		return true, review, s.down
	})
	return s
}

func (s *apiServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *apiServer) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d tokens, %d accesses", s.tokens, s.access)
}

func traceOf(verb string) Access {
	return Access{Verb: verb, Resource: "nodes", Subresource: "trace", Name: "node1"}
}

// send sends a request with headers, and returns the status and the body.
func send(r *Reviewer, access Access, headers ...string) (int, string) {
	next := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, _ := UserOf(req.Context())
		fmt.Fprintf(w, "hello %s", user.Username)
	})
	req := httptest.NewRequest(http.MethodGet, "/trace", nil)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r.Guard(func(*http.Request) (Access, error) { return access, nil }, next).ServeHTTP(w, req)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestGuard(t *testing.T) {
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	for name, test := range map[string]struct {
		change  func(*apiServer)
		headers []string
		access  Access
		status  int
		body    string
	}{
		"allowed":              {headers: bearer("t-ann"), access: traceOf("get"), status: 200, body: "hello ann"},
		"by the proxy":         {headers: []string{Header, "t-ann"}, access: traceOf("get"), status: 200, body: "hello ann"},
		"another verb":         {headers: bearer("t-ann"), access: traceOf("create"), status: 403, body: "forbidden: ann may not create nodes/trace node1"},
		"another user":         {headers: bearer("t-bob"), access: traceOf("get"), status: 403, body: "forbidden: bob may not get nodes/trace node1"},
		"a path":               {headers: bearer("t-ann"), access: Access{Verb: "get", Path: "/egress"}, status: 403, body: "forbidden: ann may not get /egress"},
		"no token":             {access: traceOf("get"), status: 401, body: "unauthenticated: the request has no token"},
		"another scheme":       {headers: []string{"Authorization", "Basic t-ann"}, access: traceOf("get"), status: 401, body: "unauthenticated: the request has no token"},
		"unknown token":        {headers: bearer("t-eve"), access: traceOf("get"), status: 401, body: "unauthenticated: the API server does not know the token, or it is meant for something else"},
		"endless token":        {headers: bearer(strings.Repeat("x", longest+1)), access: traceOf("get"), status: 401, body: "unauthenticated: the token is too long"},
		"token for others":     {change: func(s *apiServer) { s.audience = "trace/node2" }, headers: bearer("t-ann"), access: traceOf("get"), status: 401, body: "unauthenticated: the API server does not know the token, or it is meant for something else"},
		"API server is silent": {change: func(s *apiServer) { s.down = errors.New("no answer") }, headers: bearer("t-ann"), access: traceOf("get"), status: 503, body: "cannot tell whether the request is allowed: review a token: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			if test.change != nil {
				test.change(s)
			}
			status, body := send(New(s, "trace/node1"), test.access, test.headers...)
			if status != test.status || body != test.body {
				t.Errorf("got %d %q, want %d %q", status, body, test.status, test.body)
			}
		})
	}
}

func TestBadRequestAsksNobody(t *testing.T) {
	s := newAPIServer()
	w := httptest.NewRecorder()
	New(s).Guard(func(*http.Request) (Access, error) { return Access{}, errors.New("no such node") }, http.NotFoundHandler()).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusBadRequest || s.asked() != "0 tokens, 0 accesses" {
		t.Errorf("answered %d, asked %s", w.Code, s.asked())
	}
}

// TestOldAPIServer: an API server without support for audiences does not say what a token is for.
func TestOldAPIServer(t *testing.T) {
	s := newAPIServer()
	s.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{Authenticated: true}}, nil
	})
	if status, _ := send(New(s, "trace/node1"), traceOf("get"), Header, "t-ann"); status != http.StatusUnauthorized {
		t.Errorf("a token of unknown audience is answered %d", status)
	}
}

func TestAnswersAreRememberedForAShortTime(t *testing.T) {
	t.Run("by default", func(t *testing.T) { remembers(t, lifetime, func(r *Reviewer) *Reviewer { return r }) })
	t.Run("a minute", func(t *testing.T) {
		remembers(t, time.Minute, func(r *Reviewer) *Reviewer { return r.Remember(time.Minute) })
	})
}

func remembers(t *testing.T, lifetime time.Duration, change func(*Reviewer) *Reviewer) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer()
		r := change(New(s, "trace/node1"))
		want := func(status int, asked string) {
			t.Helper()
			if got, body := send(r, traceOf("get"), Header, "t-ann"); got != status || s.asked() != asked {
				t.Errorf("answered %d %q after %s, want %d after %s", got, body, s.asked(), status, asked)
			}
		}
		want(200, "1 tokens, 1 accesses")
		<-time.After(lifetime - time.Second)
		want(200, "1 tokens, 1 accesses")
		s.set(func() { s.may = nil })
		<-time.After(lifetime)
		want(403, "2 tokens, 2 accesses")
		want(403, "2 tokens, 2 accesses")
		s.set(func() { s.users = nil })
		<-time.After(lifetime)
		want(401, "3 tokens, 2 accesses")
		want(401, "3 tokens, 2 accesses")
		s.set(func() { s.down = errors.New("no answer") })
		<-time.After(lifetime)
		want(503, "4 tokens, 2 accesses")
		want(503, "5 tokens, 2 accesses")
	})
}

func TestStrangersCannotKeepTheAPIServerBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(newAPIServer(), "trace/node1")
		answer, gaveUp, asked := make(chan struct{}), make(chan error, 100), make(chan error, 100)
		ctx, cancel := context.WithTimeout(t.Context(), reviewTimeout)
		defer cancel()
		for range 100 {
			go func() {
				err := r.ask(ctx, func(context.Context) error { <-answer; return nil })
				if err != nil {
					gaveUp <- err
				} else {
					asked <- nil
				}
			}()
		}
		<-time.After(reviewTimeout)
		synctest.Wait()
		if n := len(gaveUp); n != 100-atOnce {
			t.Errorf("%d questions gave up, want all but %d", n, atOnce)
		}
		close(answer)
		synctest.Wait()
		if n := len(asked); n != atOnce {
			t.Errorf("%d questions were asked, want %d", n, atOnce)
		}
	})
}

func TestAnswersAreBounded(t *testing.T) {
	a := newAnswers[int](func(int) bool { return true })
	for i := range 3 * remembered {
		if v, err := a.get(i, func() (int, error) { return i, nil }); v != i || err != nil {
			t.Fatalf("%d: %d, %v", i, v, err)
		}
		if len(a.all) > remembered {
			t.Fatalf("%d answers are kept", len(a.all))
		}
	}
}

func TestUserOfNobody(t *testing.T) {
	if u, ok := UserOf(context.Background()); ok || u != nil {
		t.Errorf("somebody: %v", u)
	}
}
