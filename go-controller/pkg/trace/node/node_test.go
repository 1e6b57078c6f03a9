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
	"sync/atomic"
	"testing"
	"testing/synctest"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/authn"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/trace"
)

// reviews knows tokens for a node: "may" may trace, "may-probe" may probe, and "may-not" may do neither.
func reviews(node string) *authn.Reviewer {
	kube := fakeapi.NewClientset()
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
		r.Status.Allowed = of.Resource == "nodes" && of.Name == node && map[string]string{"may": "get trace", "may-probe": "create probe"}[r.Spec.User] == of.Verb+" "+of.Subresource
		return true, r, nil
	})
	return authn.New(kube, trace.Audience(node))
}

// deps are those of node n1 with the pod prod/web; another pod is on another node.
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
		Connection: func(_ context.Context, q trace.Question) (trace.Connection, error) {
			at := netip.AddrPortFrom(q.Source, q.Port)
			return trace.Connection{Entries: []trace.Entry{{Table: trace.TableKernel, From: at, Becomes: at}}}, nil
		},
		Probe: func(_ context.Context, pod *corev1.Pod, source netip.Addr, q trace.Question) (trace.Probed, error) {
			return trace.Probed{From: netip.AddrPortFrom(source, 40123), Outcome: trace.ProbeRefused, Why: pod.Name + " to " + q.To.String()}, nil
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
		"connection":        {"GET", "/trace/v1/n1/connection" + rest + "&source=10.244.1.3&port=40123", "may", 200, `"connection":{"entries":[{"table":"kernel","from":"10.244.1.3:40123","becomes":"10.244.1.3:40123"}]}`},
		"probe":             {"POST", "/trace/v1/n1/probe" + rest + "&pod=prod/web", "may-probe", 200, `"probed":{"from":"10.244.1.3:40123","outcome":"Refused","why":"web to 192.0.2.1:80","milliseconds":0}`},
		"probe to read":     {"GET", "/trace/v1/n1/probe" + rest + "&pod=prod/web", "may-probe", 405, "allowed: POST"},
		"probe by a tracer": {"POST", "/trace/v1/n1/probe" + rest + "&pod=prod/web", "may", 403, "may may not create nodes/probe n1"},
		"trace by a prober": {"GET", "/trace/v1/n1/connection" + rest + "&source=10.244.1.3&port=1", "may-probe", 403, "may-probe may not get nodes/trace n1"},
		"stranger's probe":  {"POST", "/trace/v1/n1/probe" + rest + "&pod=prod/web", "eve", 401, "unauthenticated"},
		"probe elsewhere":   {"POST", "/trace/v1/n1/probe" + rest + "&pod=prod/other", "may-probe", 404, "node n1 has no pod prod/other"},
		"probe, no family":  {"POST", "/trace/v1/n1/probe?protocol=tcp&to=[2001:db8::1]:80&pod=prod/web", "may-probe", 409, "pod prod/web has no IPv6 address"},
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

// A question about another node is forwarded once and unchanged, and that node authorizes the caller.
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
	if status, body := get(h, "POST", "/trace/v1/n2/probe"+rest+"&pod=prod/web", "may-probe"); status != 200 || !strings.Contains(body, `"outcome":"Refused"`) {
		t.Errorf("a probe: %d %s", status, body)
	}
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

// However many callers ask, only a few are answered at a time, and each gets an answer.
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
			<-ctx.Done() // as slow as possible
			mu.Lock()
			now--
			mu.Unlock()
			return trace.Kernel{}, ctx.Err()
		}
		h := New(d)
		// The caller is authorized before this.
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

// Even for callers who may probe, one probe is sent at a time and only a few in quick succession; questions do not
// wait for them.
func TestFewProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sending := make(chan struct{})
		d := deps("n1")
		var now, most, sent atomic.Int32
		d.Probe = func(context.Context, *corev1.Pod, netip.Addr, trace.Question) (trace.Probed, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			sent.Add(1)
			<-sending
			return trace.Probed{}, nil
		}
		h := New(d)
		codes := make(chan int, 100)
		for range 100 {
			go func() {
				status, _ := get(h, "POST", "/trace/v1/n1/probe"+rest+"&pod=prod/web", "may-probe")
				codes <- status
			}()
		}
		synctest.Wait()
		if status, body := get(h, "GET", "/trace/v1/n1/kernel"+rest+"&source=10.244.1.3", "may"); status != 200 {
			t.Errorf("a question beside a probe: %d %s", status, body)
		}
		close(sending)
		for range 100 {
			if status := <-codes; status != http.StatusOK && status != http.StatusTooManyRequests {
				t.Errorf("status %d", status)
			}
		}
		if most.Load() != probesAtOnce || sent.Load() > probesBurst {
			t.Errorf("%d probes, %d at a time", sent.Load(), most.Load())
		}
	})
}

// A panic is answered with an error, and the next question is answered as usual.
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
