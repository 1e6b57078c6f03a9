package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	egressfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const patience = 20 * time.Second

var cluster = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}

// chains counts the calls that reach the chains, and may refuse them.
type chains struct {
	*hostfake.Chains
	mu    sync.Mutex
	calls []string
	fail  int
}

func (c *chains) Apply(ctx context.Context, contributor string, want host.Rules) error {
	c.mu.Lock()
	c.calls = append(c.calls, contributor)
	fail := c.fail > 0
	c.fail--
	c.mu.Unlock()
	if fail {
		return errors.New("the table is locked")
	}
	return c.Chains.Apply(ctx, contributor, want)
}

func (c *chains) called(contributor string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, name := range c.calls {
		if name == contributor {
			n++
		}
	}
	return n
}

type world struct {
	t      *testing.T
	kube   *kubefake.Clientset
	egress *egressfake.Clientset
	chains *chains
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, egress: egressfake.NewSimpleClientset(egress("demo-svc", "")),
		kube: kubefake.NewClientset(service("demo-svc", "5.5.5.5", "5555:5555:5555:5555:5555:5555:5555:5555"),
			slice("demo-svc", "10.244.0.5", "10.244.2.7", "fd00:10:244:1::5", "fd00:10:244:3::7")),
		chains: &chains{Chains: hostfake.NewChains(egressservice.Chains(topology.Families))}}
	return w
}

// start runs the node side of ovn-worker2.
func (w *world) start() *Controller {
	w.t.Helper()
	core, own := informers.NewSharedInformerFactory(w.kube, 0), externalversions.NewSharedInformerFactory(w.egress, 0)
	c, err := New(Deps{Node: "ovn-worker2", Chains: w.chains, ClusterSubnets: cluster, Informers: snapshot.Informers{
		EgressServices: own.EgressService().V1().EgressServices(),
		Services:       core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(),
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	core.Start(ctx.Done())
	own.Start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		core.Shutdown()
		own.Shutdown()
	})
	select {
	case <-c.Seeded():
	case <-time.After(patience):
		w.t.Fatal("not seeded")
	}
	return c
}

func (w *world) dump() string {
	var out strings.Builder
	for _, f := range topology.Families {
		out.WriteString(w.chains.Dump(f))
	}
	return out.String()
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("waited in vain for %s\n%s", what, w.dump())
		}
	}
}

func (w *world) update(eg *v1.EgressService) {
	w.t.Helper()
	if _, err := w.egress.EgressServiceV1().EgressServices(eg.Namespace).Update(w.t.Context(), eg, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func egress(name, hostName string) *v1.EgressService {
	return &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Status: v1.EgressServiceStatus{Host: hostName}}
}

func service(name string, ingress ...string) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, ip := range ingress {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return svc
}

func slice(name string, pods ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: name}}}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{p}})
	}
	return s
}

func rules(w *world) int { return strings.Count(w.dump(), "-j SNAT") }

// TestHostProgramsItsChain follows the document: nothing, the host, not the host
// any more, and the other ways out.
func TestHostProgramsItsChain(t *testing.T) {
	w := newWorld(t)
	w.start()
	golden.Check(t, "nothing", w.dump())
	w.update(egress("demo-svc", "ovn-worker2"))
	w.eventually("the translations", func() bool { return rules(w) == 4 })
	golden.Check(t, "host", w.dump())

	svcs, slices := w.kube.CoreV1().Services("default"), w.kube.DiscoveryV1().EndpointSlices("default")
	if _, err := slices.Update(t.Context(), slice("demo-svc", "10.244.0.5", "172.18.0.4"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("fewer endpoints", func() bool { return rules(w) == 1 })
	if _, err := svcs.Update(t.Context(), service("demo-svc", "6.6.6.6"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("another address", func() bool { return strings.Contains(w.dump(), "--to-source 6.6.6.6") })
	if _, err := svcs.Update(t.Context(), service("demo-svc"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("no address, no rule", func() bool { return rules(w) == 0 })
	if _, err := svcs.Update(t.Context(), service("demo-svc", "6.6.6.6"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the address again", func() bool { return rules(w) == 1 })

	w.update(egress("demo-svc", "ovn-worker"))
	w.eventually("the start", func() bool { return rules(w) == 0 })
	golden.Check(t, "nothing", w.dump())
	w.update(egress("demo-svc", "ovn-worker2"))
	w.eventually("the host again", func() bool { return rules(w) == 1 })
	if err := w.egress.EgressServiceV1().EgressServices("default").Delete(t.Context(), "demo-svc", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the end", func() bool { return rules(w) == 0 })
}

// TestOthersServicesCostNothing: what is none of this node's business does not
// reach the kernel.
func TestOthersServicesCostNothing(t *testing.T) {
	w := newWorld(t)
	w.start()
	for _, h := range []string{"ovn-worker", "", "ALL", "ovn-worker"} {
		w.update(egress("demo-svc", h))
	}
	w.update(egress("demo-svc", "ovn-worker2"))
	w.eventually("the translations", func() bool { return rules(w) == 4 })
	me := egressservice.Contributor("default/demo-svc")
	if n := w.chains.called(me); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	w.update(egress("demo-svc", "ovn-worker"))
	w.eventually("the start", func() bool { return rules(w) == 0 })
	w.update(egress("demo-svc", ""))
	// Another service goes through the queue behind it.
	if _, err := w.egress.EgressServiceV1().EgressServices("default").Create(t.Context(), egress("next", "ovn-worker2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.kube.CoreV1().Services("default").Create(t.Context(), service("next", "7.7.7.7"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice("next", "10.244.0.9"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the next service", func() bool { return rules(w) == 1 })
	if n := w.chains.called(me); n != 2 {
		t.Errorf("%d calls, want 2: %v", n, slices.Sorted(slices.Values(w.chains.calls)))
	}
}

func TestErrorsAreRetried(t *testing.T) {
	w := newWorld(t)
	w.chains.fail = 3
	w.update(egress("demo-svc", "ovn-worker2"))
	w.start()
	if rules(w) != 4 {
		t.Errorf("seeded without the rules:\n%s", w.dump())
	}
}
