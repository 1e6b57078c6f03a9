package snapshot

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	egressfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}
}

func sliceOf(service string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: meta("slice", map[string]string{discoveryv1.LabelServiceName: service}),
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.5"}}}}
}

// keys collects the reconciled keys.
type keys struct {
	mu   sync.Mutex
	seen []string
}

func (k *keys) reconcile(_ context.Context, key string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen = append(k.seen, key)
	return nil
}

// wait waits for all of want and clears the collected keys.
func (k *keys) wait(t *testing.T, want ...string) {
	t.Helper()
	var seen []string
	eventually.Succeeds(t, fmt.Sprint(want), func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(k.seen, w) }) {
			return fmt.Errorf("saw %v", k.seen)
		}
		seen, k.seen = k.seen, nil
		return nil
	})
	for _, s := range seen {
		if !slices.Contains(want, s) {
			t.Errorf("%s was reconciled, want only %v", s, want)
		}
	}
}

// TestEventsFindTheirEgressService: an object affects the EgressService it
// belongs to and the one it belonged to, and nothing if there is none.
func TestEventsFindTheirEgressService(t *testing.T) {
	cs := fakeapi.NewClientset(&corev1.Service{ObjectMeta: meta("a", nil)}, &corev1.Service{ObjectMeta: meta("nobody", nil)}, sliceOf("a"))
	own := egressfake.NewSimpleClientset(&v1.EgressService{ObjectMeta: meta("a", nil)}, &v1.EgressService{ObjectMeta: meta("b", nil)})
	core, egress := informers.NewSharedInformerFactory(cs, 0), externalversions.NewSharedInformerFactory(own, 0)
	in := Informers{EgressServices: egress.EgressService().V1().EgressServices(), Services: core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(), Pods: core.Core().V1().Pods()}
	r, err := NewReader(in, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, topology.GatewayLocal, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewReader(in, nil, topology.GatewayLocal, nil); err != nil {
		t.Errorf("a second reader of the same informers: %v", err)
	}
	k := &keys{}
	c := queue.New("test", k.reconcile)
	c.Seed(r.Keys)
	if err := r.Watch(c, func(_ Kind, key string) []string { return []string{key} }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	fakeapi.Start(ctx, t, cs, core)
	fakeapi.Start(ctx, t, own, egress)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, 1) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		core.Shutdown()
		egress.Shutdown()
	})
	k.wait(t, "ns/a", "ns/b")

	if _, err := cs.DiscoveryV1().EndpointSlices("ns").Update(ctx, sliceOf("b"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.wait(t, "ns/a", "ns/b")
	for _, name := range []string{"nobody", "a"} {
		svc := &corev1.Service{ObjectMeta: meta(name, map[string]string{"changed": ""})}
		if _, err := cs.CoreV1().Services("ns").Update(ctx, svc, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	k.wait(t, "ns/a")

	for key, want := range map[string]int{"ns/a": 0, "ns/b": 1} {
		eg, err := r.Object(key)
		if err != nil || eg == nil {
			t.Fatalf("%v, %v", eg, err)
		}
		slices, err := r.slicesOf(eg)
		if err != nil || len(slices) != want {
			t.Errorf("%s has %d slices, want %d (%v)", key, len(slices), want, err)
		}
	}
	if eg, err := r.Object("ns/nobody"); eg != nil || err != nil {
		t.Errorf("%v, %v", eg, err)
	}
	if _, err := r.Object("a/b/c"); err == nil {
		t.Error("a key of three parts")
	}
}

// TestStatusIsAKindOfItsOwn: callers that ignore statuses need not process each
// status write.
func TestStatusIsAKindOfItsOwn(t *testing.T) {
	was := &v1.EgressService{ObjectMeta: meta("a", nil)}
	status, spec, generation, other := was.DeepCopy(), was.DeepCopy(), was.DeepCopy(), was.DeepCopy()
	status.Status.Host = "node"
	status.Labels = map[string]string{"changed": ""}
	spec.Spec.Network = "blue"
	generation.Generation++
	other.UID = "another of the same name"
	for name, c := range map[string]struct {
		old, new any
		want     bool
	}{
		"status and metadata": {was, status, true},
		"spec":                {was, spec, false},
		"spec, as it is read": {was, generation, false},
		"made anew":           {was, other, false},
		"made":                {nil, was, false},
		"deleted":             {was, nil, false},
		"something else":      {&corev1.Service{}, &corev1.Service{}, false},
	} {
		if got := sameButStatus(c.old, c.new); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestGivenOut: when the owner of an address changes, the EgressServices whose Services have the address
// from a load balancer are reconciled, without searching through the others.
func TestGivenOut(t *testing.T) {
	var core, own []runtime.Object
	for i := range 20 {
		name := fmt.Sprintf("s%d", i)
		svc := &corev1.Service{ObjectMeta: meta(name, nil)}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("5.0.0.%d", i)}, {IP: "::ffff:5.0.1.1"}, {Hostname: "a.name"}}
		core = append(core, svc)
		if i%2 == 0 {
			own = append(own, &v1.EgressService{ObjectMeta: meta(name, nil)})
		}
	}
	cs, egressCS := fakeapi.NewClientset(core...), egressfake.NewSimpleClientset(own...)
	factory, egress := informers.NewSharedInformerFactory(cs, 0), externalversions.NewSharedInformerFactory(egressCS, 0)
	r, err := NewReader(Informers{EgressServices: egress.EgressService().V1().EgressServices(), Services: factory.Core().V1().Services(),
		EndpointSlices: factory.Discovery().V1().EndpointSlices(), Pods: factory.Core().V1().Pods()}, nil, topology.GatewayShared, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	fakeapi.Start(ctx, t, cs, factory)
	fakeapi.Start(ctx, t, egressCS, egress)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		egress.Shutdown()
	})
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	for _, c := range []struct {
		addrs []netip.Addr
		want  string
	}{
		{addrs("5.0.0.4"), "[ns/s4]"},
		{addrs("5.0.0.4", "5.0.0.2", "5.0.0.4"), "[ns/s2 ns/s4]"},
		{addrs("5.0.0.3"), "[]"}, // no EgressService
		{addrs("9.9.9.9"), "[]"},
	} {
		if got := fmt.Sprint(r.givenOut(c.addrs)); got != c.want {
			t.Errorf("%v: %s, want %s", c.addrs, got, c.want)
		}
	}
	if got := len(r.givenOut(addrs("5.0.1.1"))); got != 10 {
		t.Errorf("an address that all have: %d EgressServices", got)
	}
}
