package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice/snapshot"
	egressfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

var cluster = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}

// chains counts the writes to the chains, and may reject them.
type chains struct {
	*hostfake.Chains
	mu    sync.Mutex
	calls []string
	fail  int
}

// refuse makes the next calls fail.
func (c *chains) refuse(times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = times
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

// kernel is a host's connections and routing tables for a test.
type kernel struct {
	mu     sync.Mutex
	tables map[string]host.RoutingTable
	finds  int                    // how often a table was looked up
	open   map[[2]netip.Addr]bool // source and translated source
	former map[netip.Addr]bool    // the addresses of links by which no connection leaves
	ended  []netip.Addr
	fail   func() error // nil: never fails
}

func (k *kernel) fails() error {
	if k.fail == nil {
		return nil
	}
	return k.fail()
}

func (k *kernel) Find(network string) (host.RoutingTable, bool, error) {
	if err := k.fails(); err != nil {
		return host.RoutingTable{}, false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.finds++
	t, ok := k.tables[network]
	return t, ok, nil
}

func (k *kernel) flush(_ context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error {
	if err := k.fails(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.open {
		if stale(c[0], c[1]) {
			delete(k.open, c)
		}
	}
	k.ended = append(k.ended, ended...)
	return nil
}

func (k *kernel) connect(src, to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[[2]netip.Addr{netip.MustParseAddr(src), netip.MustParseAddr(to)}] = true
}

func (k *kernel) connected(src, to string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open[[2]netip.Addr{netip.MustParseAddr(src), netip.MustParseAddr(to)}]
}

type world struct {
	t       *testing.T
	kube    *kubefake.Clientset
	egress  *egressfake.Clientset
	chains  *chains
	kernel  *kernel
	ipRules *hostfake.Kernel[host.IPRule, struct{}]
	linger  time.Duration
	lists   chan struct{}   // see unlisted
	faults  *fakeapi.Faults // of the API, or nil
	applied func()          // tells that the master's changes have taken effect, for the last run
	settled atomic.Int64    // how often the flows were waited for
	stop    func()
	sweep   func(context.Context) error
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, egress: egressfake.NewSimpleClientset(egress("demo-svc", "")),
		kube: fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ovn-worker2"}}, service("demo-svc", "5.5.5.5", "5555:5555:5555:5555:5555:5555:5555:5555"),
			slice("demo-svc", "10.244.0.5", "10.244.2.7", "fd00:10:244:1::5", "fd00:10:244:3::7"),
			pod("default", "a", "ovn-worker", "10.244.0.5", "fd00:10:244:1::5"), pod("default", "b", "ovn-control-plane", "10.244.2.7", "fd00:10:244:3::7"),
			pod("default", "c", "ovn-worker", "10.244.0.3"), pod("default", "d", "ovn-worker2", "10.244.1.6"),
			pod("default", "e", "ovn-worker", "10.244.0.6"), pod("default", "f", "ovn-worker", "10.244.0.9"),
			pod("other", "g", "ovn-worker2", "10.244.1.66")),
		chains:  &chains{Chains: hostfake.NewChains(egressservice.Chains(topology.Families))},
		kernel:  &kernel{tables: map[string]host.RoutingTable{}, open: map[[2]netip.Addr]bool{}},
		ipRules: hostfake.NewKernel(map[host.IPRule]struct{}{}),
		linger:  time.Millisecond,
	}
	fakeapi.Strict(w.kube)
	fakeapi.Strict(w.egress)
	return w
}

// start runs the node side of ovn-worker2.
func (w *world) start() *Controller {
	w.t.Helper()
	core, own := w.nodeInformers(), externalversions.NewSharedInformerFactory(w.egress, fakeapi.NoResync)
	ipRules := host.NewSet("ip rules", w.ipRules, func(struct{}, struct{}) bool { return true })
	w.sweep = ipRules.Sweep
	c, err := New(Deps{Node: "ovn-worker2", Chains: w.chains, ClusterSubnets: cluster, Mode: topology.GatewayLocal,
		NodeLocal: []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")},
		Egress:    w.egress, Tables: w.kernel, Flush: w.kernel.flush, FlushLed: w.kernel.flushLed, Linger: w.linger,
		OnApplied: func(f func()) { w.applied = f },
		Neighbor: func(node string) []netip.Addr {
			return map[string][]netip.Addr{"ovn-worker": {netip.MustParseAddr("172.18.0.3"), netip.MustParseAddr("fc00::3")}}[node]
		},
		Settle: func(context.Context) error {
			w.settled.Add(1)
			return nil
		},
		IPRules: ipRules, Nodes: core.Core().V1().Nodes(),
		Informers: snapshot.Informers{
			EgressServices: own.EgressService().V1().EgressServices(),
			Services:       core.Core().V1().Services(),
			EndpointSlices: core.Discovery().V1().EndpointSlices(),
			Pods:           core.Core().V1().Pods(),
			Namespace:      w.namespacePods,
		}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.faults.Start(ctx, w.t, w.kube, core)
	w.faults.Start(ctx, w.t, w.egress, own)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		core.Shutdown()
		own.Shutdown()
	})
	w.t.Cleanup(w.stop)
	<-c.Synced() // with a failing kernel this may take many attempts
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
	eventually.True(w.t, what, ok, eventually.Dump(w.dump))
}

func (w *world) update(eg *v1.EgressService) {
	w.t.Helper()
	if _, err := w.egress.EgressServiceV1().EgressServices(eg.Namespace).Update(w.t.Context(), eg, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func egress(name, hostName string) *v1.EgressService {
	return &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
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

// pod returns a running pod.
func pod(namespace, name, node string, addrs ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, a := range addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

// TestOthersPodsAreLeftAlone: an address that a slice lists but no pod of the namespace has is
// not touched; it is served from when a pod has it until that pod is finished.
func TestOthersPodsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slices, pods := w.kube.DiscoveryV1().EndpointSlices("default"), w.kube.CoreV1().Pods("default")
		if _, err := slices.Update(t.Context(), slice("demo-svc", "10.244.0.5", "10.244.1.66", "10.244.1.77"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the translation", func() bool { return rules(w) == 1 })
		if strings.Contains(w.dump(), "10.244.1.66") {
			t.Errorf("the pod of another namespace is translated:\n%s", w.dump())
		}
		late := pod("default", "late", "ovn-worker2", "10.244.1.77")
		if _, err := pods.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the pod that came after its slice", func() bool { return strings.Contains(w.dump(), "10.244.1.77") })
		late.Status.Phase = corev1.PodSucceeded
		if _, err := pods.Update(t.Context(), late, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the finished pod to go", func() bool { return rules(w) == 1 })
	})
}

func rules(w *world) int { return strings.Count(w.dump(), "-j SNAT") }

// TestHostProgramsItsChain follows the documentation: no host, the host, no longer the host,
// and the other ways to end.
func TestHostProgramsItsChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

		w.setStatus(programmedBy("ovn-worker", true))
		w.eventually("the start", func() bool { return rules(w) == 0 })
		golden.Check(t, "nothing", w.dump())
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the host again", func() bool { return rules(w) == 1 })
		if err := w.egress.EgressServiceV1().EgressServices("default").Delete(t.Context(), "demo-svc", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the end", func() bool { return rules(w) == 0 })
	})
}

// TestOthersServicesCostNothing: EgressServices that do not involve this node do not
// reach the kernel.
func TestOthersServicesCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		w.setStatus(programmedBy("ovn-worker", true))
		w.eventually("the start", func() bool { return rules(w) == 0 })
		w.update(egress("demo-svc", ""))
		fakeapi.Settle()
		if n := w.chains.called(me); n != 2 {
			t.Errorf("%d calls, want 2: %v", n, slices.Sorted(slices.Values(w.chains.calls)))
		}
	})
}

func TestErrorsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.chains.fail = 3
		w.update(egress("demo-svc", "ovn-worker2"))
		w.start()
		if rules(w) != 4 {
			t.Errorf("all have spoken without the rules:\n%s", w.dump())
		}
	})
}

func (w *world) status() v1.EgressServiceStatus {
	eg, err := w.egress.EgressServiceV1().EgressServices("default").Get(context.Background(), "demo-svc", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return eg.Status
}

func (w *world) setStatus(change func(*v1.EgressServiceStatus)) {
	w.t.Helper()
	// The node may write its acknowledgement in between.
	services := w.egress.EgressServiceV1().EgressServices("default")
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		eg, err := services.Get(context.Background(), "demo-svc", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&eg.Status)
		_, err = services.Update(context.Background(), eg, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// programmedBy sets a status in which host has acknowledged, and whether it has the traffic.
func programmedBy(host string, traffic bool) func(*v1.EgressServiceStatus) {
	return func(s *v1.EgressServiceStatus) {
		s.Host, s.Programmed = host, &v1.ProgrammedStatus{Host: host, Digest: "x"}
		s.Conditions = []metav1.Condition{{Type: v1.ConditionProgrammed, Status: metav1.ConditionFalse}}
		if traffic {
			s.Conditions[0].Status = metav1.ConditionTrue
		}
	}
}

// TestAcknowledges: the host acknowledges what it has programmed, afterwards, once for
// each change; a restart does not acknowledge again.
func TestAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var early []string
		patches := 0
		w.egress.PrependReactor("patch", "egressservices", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.chains.mu.Lock()
			defer w.chains.mu.Unlock()
			patches++
			if rules(w) == 0 {
				early = append(early, "acknowledged without a rule")
			}
			return false, nil, nil
		})
		w.start()
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the word", func() bool { p := w.status().Programmed; return p != nil && p.Host == "ovn-worker2" })
		first := w.status().Programmed.Digest
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), slice("demo-svc", "10.244.0.5", "10.244.0.6"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("another word", func() bool { return w.status().Programmed.Digest != first })
		if len(early) > 0 || patches != 2 {
			t.Errorf("%d patches, want 2; %q", patches, early)
		}
		calls := patches
		w.start() // a second controller is equivalent to a restarted one
		if patches != calls {
			t.Errorf("a restart wrote %d times", patches-calls)
		}
	})
}

// TestOldHostWaits: the rules stay until the next host has the traffic.
func TestOldHostWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the translations", func() bool { return rules(w) == 4 })
		w.eventually("the word", func() bool { return w.status().Programmed != nil })
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker" })
		fakeapi.Settle()
		if rules(w) != 4 {
			t.Errorf("rules went before the next host said anything:\n%s", w.dump())
		}
		w.setStatus(programmedBy("ovn-worker", false))
		fakeapi.Settle()
		if rules(w) != 4 {
			t.Errorf("rules went before the policies did:\n%s", w.dump())
		}
		w.kernel.connect("10.244.0.5", "5.5.5.5")
		w.kernel.connect("10.244.0.5", "172.18.0.3")
		w.kernel.connect("10.244.0.99", "5.5.5.5")
		w.setStatus(programmedBy("ovn-worker", true))
		w.eventually("the rules to go", func() bool { return rules(w) == 0 })
		w.eventually("the connections to go", func() bool { return !w.kernel.connected("10.244.0.5", "5.5.5.5") })
		if !w.kernel.connected("10.244.0.5", "172.18.0.3") || !w.kernel.connected("10.244.0.99", "5.5.5.5") {
			t.Error("others' connections went, too")
		}
		fakeapi.Settle() // packets are handed on to the next host for as long
		golden.Check(t, "nothing", w.dump())
	})
}

// TestRulesLinger: a rule that is no longer used stays for a while, after
// those in use, and connections that predate a translation are deleted.
func TestRulesLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.linger = time.Hour
		w.kernel.connect("10.244.0.5", "172.18.0.3")
		w.start()
		w.update(egress("demo-svc", "ovn-worker2"))
		w.eventually("the word", func() bool { return w.status().Programmed != nil })
		if w.kernel.connected("10.244.0.5", "172.18.0.3") {
			t.Error("a connection goes on with the node's address")
		}
		if err := w.egress.EgressServiceV1().EgressServices("default").Delete(t.Context(), "demo-svc", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		fakeapi.Settle()
		if rules(w) != 4 {
			t.Errorf("rules of the deleted EgressService:\n%s", w.dump())
		}
		// Another EgressService gets one of its pods: its rule comes first.
		for _, f := range []func() error{
			func() error {
				_, err := w.kube.CoreV1().Services("default").Create(t.Context(), service("z-next", "6.6.6.6"), metav1.CreateOptions{})
				return err
			},
			func() error {
				_, err := w.kube.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice("z-next", "10.244.0.5"), metav1.CreateOptions{})
				return err
			},
			func() error {
				_, err := w.egress.EgressServiceV1().EgressServices("default").Create(t.Context(), egress("z-next", "ovn-worker2"), metav1.CreateOptions{})
				return err
			},
		} {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
		w.eventually("the next", func() bool { return strings.Contains(w.dump(), "6.6.6.6") })
		if d := w.dump(); strings.Index(d, "6.6.6.6") > strings.Index(d, "10.244.0.5/32 -m comment --comment \"default/demo-svc\"") {
			t.Errorf("a rule on its way out comes first:\n%s", d)
		}
	})
}

// TestConnectionsOfEarlierDays: a node that becomes host again forgets its old entries of
// the pods' connections, which continued elsewhere: their TCP windows have moved. A restarted host
// deletes no connections.
func TestConnectionsOfEarlierDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.linger = time.Hour
		w.start()
		w.update(egress("demo-svc", "ovn-worker2"))
		acked := func() bool { p := w.status().Programmed; return p != nil && p.Host == "ovn-worker2" }
		w.eventually("the word", acked)
		w.setStatus(func(s *v1.EgressServiceStatus) {
			s.Conditions = []metav1.Condition{{Type: v1.ConditionProgrammed, Status: metav1.ConditionTrue}}
		})
		w.kernel.connect("10.244.0.5", "5.5.5.5")
		w.kernel.connect("10.244.0.99", "5.5.5.5")
		w.start() // a second controller is equivalent to a restarted one
		fakeapi.Settle()
		if !w.kernel.connected("10.244.0.5", "5.5.5.5") {
			t.Error("a restart cut a connection")
		}
		w.setStatus(programmedBy("ovn-worker", true))
		fakeapi.Settle()
		w.setStatus(func(s *v1.EgressServiceStatus) { s.Host = "ovn-worker2" })
		w.eventually("the word again", acked)
		if w.kernel.connected("10.244.0.5", "5.5.5.5") {
			t.Error("a connection of an earlier time as host is still known")
		}
		if !w.kernel.connected("10.244.0.99", "5.5.5.5") {
			t.Error("another's connection went, too")
		}
	})
}

// TestHalfWritten: ip rules of a partially failed attempt are removed when nothing is wanted
// any more.
func TestHalfWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.kernel.tables["blue"] = host.RoutingTable{Number: 7}
		sl := slice("demo-svc", "10.244.0.3", "10.244.1.6")
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Update(t.Context(), sl, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		var busy atomic.Bool
		var added atomic.Int64
		w.ipRules.Fail = func(op string, _ host.IPRule) error {
			if op == "add" && busy.Load() && added.Add(1) > 1 {
				return errors.New("the kernel is busy")
			}
			return nil
		}
		busy.Store(true)
		w.start()
		eg := egress("demo-svc", "ovn-worker2")
		eg.Spec.Network = "blue"
		w.update(eg)
		w.eventually("half of it to be written", func() bool { return added.Load() > 1 })
		if len(w.ipRules.Objects()) != 1 {
			t.Fatalf("written:\n%s", hostfake.DumpIPRules(w.ipRules.Objects()))
		}
		w.kernel.mu.Lock()
		delete(w.kernel.tables, "blue")
		w.kernel.mu.Unlock()
		busy.Store(false)
		fakeapi.Settle()
		if got := hostfake.DumpIPRules(w.ipRules.Objects()); got != "" {
			t.Errorf("without a table there are\n%s", got)
		}
	})
}
