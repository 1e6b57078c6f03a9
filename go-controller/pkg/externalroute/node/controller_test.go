package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// datapath is Connections in memory.
type datapath struct {
	mu      sync.Mutex
	entries map[host.Steered]bool
}

func (d *datapath) List(context.Context) ([]host.Steered, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.entries)), nil
}

func (d *datapath) Flush(_ context.Context, connections []host.Steered) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range connections {
		delete(d.entries, s)
	}
	return nil
}

// left returns the neighbours of the remaining entries.
func (d *datapath) left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for s := range d.entries {
		out = append(out, s.Dst.String()+" "+s.Neighbor)
	}
	slices.Sort(out)
	return out
}

func pod(name, namespace, addr string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			// It contains another pod's address, which has no effect.
			kube.AnnotationPodNetworks: `{"default":{"ip_addresses":["10.244.1.99/24"],"mac_address":"0a:58:0a:f4:01:63"}}`}},
		Spec:   corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: addr}}},
	}
}

func namespace(name, gateways string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if gateways != "" {
		ns.Annotations = map[string]string{kube.AnnotationGatewaysInUse: gateways}
	}
	return ns
}

// never is OnApplied of a chassis that reports nothing.
func never(func()) {}

// settled is Settle of an idle switch.
func settled(context.Context) error { return nil }

// start runs a controller until the test ends. What deps does not give is that of a node whose chassis reports nothing, and where nobody
// answers.
func start(t *testing.T, client *fake.Clientset, deps Deps) {
	t.Helper()
	core := informers.NewSharedInformerFactory(client, fakeapi.NoResync)
	deps.Namespaces, deps.Pods, deps.Own = core.Core().V1().Namespaces(), core.Core().V1().Pods(), noAddrs
	if deps.OnApplied == nil {
		deps.OnApplied = never
	}
	if deps.Settle == nil {
		deps.Settle = settled
	}
	if deps.Resolve == nil {
		deps.Resolve = func(context.Context, []netip.Addr) (map[netip.Addr]string, error) { return nil, nil }
	}
	c, err := New(deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fakeapi.Start(ctx, t, client, core)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		core.Shutdown()
	})
	fakeapi.Settle()
}

// noAddrs is Own of a node that no gateway in use is on.
func noAddrs() (map[netip.Addr]bool, error) { return nil, nil }

// TestLeavingGateways checks which connections are forgotten while gateways are removed, at a start
// and later.
func TestLeavingGateways(t *testing.T) {
	client := fakeapi.NewClientset(namespace("red", "172.18.0.51,172.18.0.52"), namespace("blue", ""),
		pod("a", "red", "10.244.0.5"), pod("b", "blue", "10.244.0.6"))
	entry := func(pod, mac string) host.Steered {
		return host.Steered{Zone: 6, Dst: netip.MustParseAddr(pod), Neighbor: mac, Tuple: pod + mac}
	}
	d := &datapath{entries: map[host.Steered]bool{
		entry("10.244.0.5", "m51"): true, entry("10.244.0.5", "m52"): true,
		entry("10.244.0.5", "m53"):  true, // removed while no controller was running
		entry("10.244.0.6", "m51"):  true, // of a pod without gateways
		entry("10.244.9.9", "m51"):  true, // of no pod of this node
		entry("10.244.0.66", "m52"): true, // nor this one
	}}
	core := informers.NewSharedInformerFactory(client, 0)
	c, err := New(Deps{Namespaces: core.Core().V1().Namespaces(), Pods: core.Core().V1().Pods(), Connections: d, OnApplied: never, Settle: settled, Own: noAddrs,
		Resolve: func(_ context.Context, addrs []netip.Addr) (map[netip.Addr]string, error) {
			found := map[netip.Addr]string{}
			for _, a := range addrs {
				found[a] = "m" + a.String()[len("172.18.0."):]
			}
			return found, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fakeapi.Start(ctx, t, client, core)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		core.Shutdown()
	})
	leaves := func(what string, want ...string) {
		t.Helper()
		eventually.True(t, fmt.Sprintf("%q %s", want, what), func() bool { return slices.Equal(d.left(), want) },
			eventually.Dump(func() string { return fmt.Sprintf("left %q", d.left()) }))
	}
	leaves("at the start", "10.244.0.5 m51", "10.244.0.5 m52", "10.244.0.66 m52", "10.244.9.9 m51")
	update := func(ns *corev1.Namespace) {
		t.Helper()
		if _, err := client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	update(namespace("red", "172.18.0.52"))
	leaves("one gateway left", "10.244.0.5 m52", "10.244.0.66 m52", "10.244.9.9 m51")
	// The chassis stores it once more before it applies the change.
	d.mu.Lock()
	d.entries[entry("10.244.0.5", "m51")] = true
	d.mu.Unlock()
	leaves("the second look", "10.244.0.5 m52", "10.244.0.66 m52", "10.244.9.9 m51")
	update(namespace("red", ""))
	leaves("all gateways left", "10.244.0.66 m52", "10.244.9.9 m51")
}
