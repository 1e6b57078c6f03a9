package node

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/authn"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

// reviews knows two tokens for a node, "may" and "may-not".
func reviews(node string) *authn.Reviewer {
	kube := fake.NewClientset()
	kube.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if strings.HasPrefix(r.Spec.Token, "may") && slices.Contains(r.Spec.Audiences, trace.Audience(node)) {
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: r.Spec.Audiences, User: authenticationv1.UserInfo{Username: r.Spec.Token}}
		}
		return true, r, nil
	})
	kube.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		of := r.Spec.ResourceAttributes
		r.Status.Allowed = r.Spec.User == "may" && of.Verb == "get" && of.Resource == "nodes" && of.Subresource == "trace" && of.Name == node
		return true, r, nil
	})
	return authn.New(kube, trace.Audience(node))
}

// deps are those of node n1 with the pod prod/web; another pod is of another node.
func deps(node string) Deps {
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for name, on := range map[string]string{"web": node, "other": "n9"} {
		_ = pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, Annotations: map[string]string{
			kube.AnnotationPodNetworks: `{"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"0a:58:0a:f4:01:03","gateway_ips":["10.244.1.1"]}}`,
		}}, Spec: corev1.PodSpec{NodeName: on}})
	}
	return Deps{
		Node: node, Pods: corelisters.NewPodLister(pods), Reviews: reviews(node),
		Subnets: func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")} },
		Peer:    func(string) (netip.AddrPort, bool) { return netip.AddrPort{}, false },
		Logical: func(_ context.Context, datapath, packet string, choice int) (trace.OVN, error) {
			return trace.OVN{Steps: []trace.Step{{Datapath: datapath, Match: packet, Priority: choice}}}, nil
		},
		Kernel: func(_ context.Context, q trace.Question) (trace.Kernel, error) {
			return trace.Kernel{Interface: "breth0", Source: q.Source}, nil
		},
		Bridge: func(context.Context, trace.Question) (trace.Bridge, error) {
			return trace.Bridge{}, errors.New("no bridge yet")
		},
	}
}

func get(h http.Handler, method, target, token string) (int, string) {
	r := httptest.NewRequest(method, target, nil)
	r.Header.Set(authn.Header, token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

const rest = "?protocol=tcp&to=192.0.2.1:80"

func TestAnswers(t *testing.T) {
	h := New(deps("n1"))
	for name, tc := range map[string]struct {
		method, target, token string
		status                int
		body                  string
	}{
		"OVN": {"GET", "/trace/v1/n1/ovn" + rest + "&pod=prod/web&choice=2", "may", 200,
			`"steps":[{"datapath":"n1","stage":"","match":"inport == \"prod_web\" \u0026\u0026 eth.src == 0a:58:0a:f4:01:03 \u0026\u0026 eth.dst == 0a:58:0a:f4:01:01 \u0026\u0026 ip4.src == 10.244.1.3 \u0026\u0026 ip4.dst == 192.0.2.1 \u0026\u0026 ip.ttl == 64 \u0026\u0026 tcp.src == 40000 \u0026\u0026 tcp.dst == 80","priority":2}]`},
		"kernel":            {"GET", "/trace/v1/n1/kernel" + rest + "&source=10.244.1.3", "may", 200, `"kernel":{"interface":"breth0","source":"10.244.1.3"}`},
		"failure":           {"GET", "/trace/v1/n1/bridge" + rest + "&source=10.244.1.3", "may", 500, "no bridge yet"},
		"pod elsewhere":     {"GET", "/trace/v1/n1/ovn" + rest + "&pod=prod/other", "may", 404, "node n1 has no pod prod/other"},
		"no pod":            {"GET", "/trace/v1/n1/ovn" + rest + "&pod=prod/none", "may", 404, "node n1 has no pod prod/none"},
		"another family":    {"GET", "/trace/v1/n1/ovn?protocol=tcp&to=[2001:db8::1]:80&pod=prod/web", "may", 409, "pod prod/web has no IPv6 address"},
		"no question":       {"GET", "/trace/v1/n1/ovn?protocol=tcp", "may", 400, "no destination"},
		"stranger":          {"GET", "/trace/v1/n1/ovn" + rest + "&pod=prod/web", "eve", 401, "unauthenticated"},
		"no rights":         {"GET", "/trace/v1/n1/ovn" + rest + "&pod=prod/web", "may-not", 403, "forbidden: may-not may not get nodes/trace n1"},
		"stranger's errors": {"GET", "/trace/v1/n1/none", "eve", 401, "unauthenticated"},
		"to write":          {"POST", "/trace/v1/n1/ovn" + rest + "&pod=prod/web", "may", 405, "allowed: GET"},
		"another path":      {"GET", "/metrics", "may", 404, "no path of a question"},
		"another node":      {"GET", "/trace/v1/n2/ovn" + rest + "&pod=prod/web", "may", 404, "there is no node n2"},
	} {
		status, body := get(h, tc.method, tc.target, tc.token)
		if status != tc.status || !strings.Contains(body, tc.body) {
			t.Errorf("%s: %d %s, want %d %s", name, status, body, tc.status, tc.body)
		}
	}
}

// A question about another node is passed on as it is, once, and that node decides who may ask.
func TestPassedOn(t *testing.T) {
	there := httptest.NewTLSServer(New(deps("n2")))
	defer there.Close()
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()
	at := func(s *httptest.Server) netip.AddrPort { return netip.MustParseAddrPort(s.Listener.Addr().String()) }
	d := deps("n1")
	d.Peer = func(node string) (netip.AddrPort, bool) {
		peer, ok := map[string]netip.AddrPort{"n2": at(there), "n3": at(there), "n4": at(gone)}[node]
		return peer, ok
	}
	h := New(d)
	for _, tc := range []struct {
		node, token string
		status      int
		body        string
	}{
		{"n2", "may", 200, `"node":"n2"`},
		{"n2", "may-not", 403, "may not get nodes/trace n2"},
		{"n2", "eve", 401, "unauthenticated"},
		{"n3", "may", 421, "this is node n2, not n3"},
		{"n4", "may", 502, "ovnkube of node n4 cannot be reached from node n1"},
	} {
		status, body := get(h, "GET", "/trace/v1/"+tc.node+"/kernel"+rest+"&source=10.244.1.3", tc.token)
		if status != tc.status || !strings.Contains(body, tc.body) {
			t.Errorf("%s, %s: %d %s, want %d %s", tc.node, tc.token, status, body, tc.status, tc.body)
		}
	}
}

// However many ask, few are answered at a time, and each gets an answer.
func TestFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		d := deps("n1")
		d.Kernel = func(ctx context.Context, _ trace.Question) (trace.Kernel, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			<-ctx.Done() // as slow as can be
			mu.Lock()
			now--
			mu.Unlock()
			return trace.Kernel{}, ctx.Err()
		}
		h := New(d)
		// Who asks is known before.
		if status, _ := get(h, "GET", "/trace/v1/n1/none", "may"); status != http.StatusBadRequest {
			t.Fatalf("status %d", status)
		}
		codes := make(chan int, 100)
		for range 100 {
			go func() {
				status, _ := get(h, "GET", "/trace/v1/n1/kernel"+rest+"&source=10.244.1.3", "may")
				codes <- status
			}()
		}
		refused := 0
		for range 100 {
			switch status := <-codes; status {
			case http.StatusTooManyRequests:
				refused++
			case http.StatusInternalServerError:
			default:
				t.Errorf("status %d", status)
			}
		}
		if most != atOnce || refused < 100-burst {
			t.Errorf("%d at a time, %d refused", most, refused)
		}
	})
}

// A panic is an answer, and the next question gets one, too.
func TestPanic(t *testing.T) {
	d := deps("n1")
	d.Kernel = func(context.Context, trace.Question) (trace.Kernel, error) { panic("a bug") }
	h := New(d)
	for range 3 {
		if status, body := get(h, "GET", "/trace/v1/n1/kernel"+rest+"&source=10.244.1.3", "may"); status != 500 || !strings.Contains(body, "a bug") {
			t.Errorf("%d %s", status, body)
		}
	}
	var facts trace.Facts
	status, body := get(h, "GET", "/trace/v1/n1/ovn"+rest+"&pod=prod/web", "may")
	if err := json.Unmarshal([]byte(body), &facts); status != 200 || err != nil || facts.OVN == nil || facts.APIVersion != "egress.ovnkube/v1" {
		t.Errorf("%d %s", status, body)
	}
}
