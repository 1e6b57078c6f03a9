package reader

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

// server answers as an API server whose lists have many pages.
type server struct {
	mu      sync.Mutex
	asked   map[string]int    // requests by path
	accepts map[string]string // accepted media types, by path
	limited []string          // paths requested with a limit
	status  int               // of all responses, if it is not 0
}

const pages = 40

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	n := s.asked[r.URL.Path]
	s.accepts[r.URL.Path] = r.Header.Get("Accept")
	if r.URL.Query().Has("limit") {
		s.limited = append(s.limited, r.URL.Path)
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if s.status != 0 {
		w.WriteHeader(s.status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":%d,"message":"no"}`, s.status)
		return
	}
	more := ""
	if n < pages {
		more = "there-is-more"
	}
	fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1","continue":%q},"items":[{"metadata":{"name":"x%d"}}]}`, more, n)
}

func (s *server) clients(t *testing.T) Clients {
	t.Helper()
	s.asked, s.accepts = map[string]int{}, map[string]string{}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	c, err := NewClients(&rest.Config{Host: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var lists = []string{
	"/api/v1/nodes", "/api/v1/namespaces", "/api/v1/pods", "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices",
	"/apis/k8s.ovn.org/v1/egressips", "/apis/k8s.ovn.org/v1/egressservices", "/apis/k8s.ovn.org/v1/adminpolicybasedexternalroutes",
}

// An API server has all objects of a kind in its cache, but does not keep the state at the time of
// the first page for long: therefore all are requested at once. If it returns a page, no client-side limit
// delays the requests for the others. The built-in kinds are requested in protobuf.
func TestReadLargeCluster(t *testing.T) {
	s := &server{}
	c := s.clients(t)
	for name, client := range map[string]rest.Interface{
		"built-in kinds": c.Kube.CoreV1().RESTClient(), "EndpointSlices": c.Kube.DiscoveryV1().RESTClient(), "EgressIPs": c.IPs.EgressIPV1().RESTClient(),
		"EgressServices": c.Services.EgressServiceV1().RESTClient(), "policies": c.Routes.AdminPolicyBasedRouteV1().RESTClient(),
	} {
		if limiter := client.GetRateLimiter(); limiter != nil {
			t.Errorf("%s: %v requests a second at most", name, limiter.QPS())
		}
	}
	stop := errors.New("the rest does not matter")
	snap, err := Read(t.Context(), c, "ovn-kubernetes", func(context.Context, kubernetes.Interface, string) (explain.Settings, string, error) {
		return explain.Settings{}, "", stop
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	for _, path := range lists {
		if s.asked[path] != pages {
			t.Errorf("%s: %d requests for %d pages", path, s.asked[path], pages)
		}
		if own := strings.Contains(path, "k8s.ovn.org"); own == strings.Contains(s.accepts[path], "protobuf") {
			t.Errorf("%s: asked for %s", path, s.accepts[path])
		}
	}
	if len(s.limited) > 0 {
		t.Errorf("a part is asked for of %q", s.limited)
	}
	for i, n := range []int{
		len(snap.Nodes), len(snap.Namespaces), len(snap.Pods), len(snap.Services), len(snap.EndpointSlices),
		len(snap.EgressIPs), len(snap.EgressServices), len(snap.Routes),
	} {
		if n != pages {
			t.Errorf("%s: %d objects of %d", lists[i], n, pages)
		}
	}
	var names []string
	for _, p := range snap.Pods {
		names = append(names, p.Name)
	}
	if !slices.Equal(names[:3], []string{"x1", "x2", "x3"}) {
		t.Errorf("pods in the order %v", names)
	}
}

// All kinds are requested concurrently, and a user who may read none of them always gets the error about the same
// kind.
func TestReadRefused(t *testing.T) {
	s := &server{status: http.StatusForbidden}
	c := s.clients(t)
	for range 20 {
		_, err := Read(t.Context(), c, metav1.NamespaceDefault, FromConfigMap)
		if err == nil || !strings.Contains(err.Error(), "you may not list nodes: have the ClusterRole egress-reader bound to you") {
			t.Fatalf("got %v", err)
		}
	}
}
