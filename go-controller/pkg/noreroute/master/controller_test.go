package master

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

var network = noreroute.Network{
	Cluster: prefixes("10.244.0.0/16", "fd00:10:244::/48"), Join: prefixes("100.64.0.0/16", "fd98::/64"),
}

// router stands for the base network, which creates the router independently.
var router = nb.Row{ID: "router", Model: &nbdb.LogicalRouter{Name: topology.ClusterRouter}}

type world struct {
	t    *testing.T
	kube *fake.Clientset
	nb   *nbfake.Writer
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, nb: nbfake.New(), kube: fakeapi.NewClientset(node("n1", "172.18.0.3/16"), node("n2", "172.18.0.4/16"))}
	w.router()
	return w
}

func (w *world) router() {
	w.t.Helper()
	if _, err := w.nb.Apply(context.Background(), nb.Owner{Feature: "network"}, []nb.Row{router}); err != nil {
		w.t.Fatal(err)
	}
}

func node(name, primary string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		kube.AnnotationPrimaryIfAddr: kube.FormatPrimaryIfAddr(prefixes(primary)),
	}}}
}

// start runs a controller and returns a function that stops it.
func (w *world) start(ip, service *noreroute.PodSet) (*Controller, func()) {
	w.t.Helper()
	core := informers.NewSharedInformerFactory(w.kube, 0)
	addresses, err := reservedsnapshot.New(reserved.Ranges{}, reservedsnapshot.Informers{Nodes: core.Core().V1().Nodes(),
		EndpointSlices: core.Discovery().V1().EndpointSlices()})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := New(Deps{Addresses: addresses, Writer: w.nb, Network: network, EgressIPPods: ip, EgressServicePods: service})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fakeapi.Start(ctx, w.t, w.kube, core)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		core.Shutdown()
	})
	w.t.Cleanup(stop)
	return c, stop
}

func (w *world) seeded(c *Controller) {
	w.t.Helper()
	eventually.Receive(w.t, "the start to be over", c.queue.Synced(), eventually.Dump(w.nb.Dump))
}

func (w *world) eventually(what string, ok func(dump string) bool) {
	w.t.Helper()
	eventually.True(w.t, what, func() bool { return ok(w.nb.DumpFeature(noreroute.Feature)) }, eventually.Dump(w.nb.Dump))
}

// set returns the line of an address set.
func set(dump string, s noreroute.Set) string {
	for line := range strings.Lines(dump) {
		if strings.Contains(line, " name="+s.Name(topology.IPv4)+" ") {
			return line
		}
	}
	return ""
}

func complete(addrs ...string) *noreroute.PodSet {
	p := noreroute.NewPodSet()
	for _, a := range addrs {
		p.Set("ns/"+a, []netip.Addr{addr(a)})
	}
	p.MarkSynced()
	return p
}

// TestPresentWhileEitherFeatureIs: the rows exist while either feature is enabled, and are
// removed with the last of them.
func TestPresentWhileEitherFeatureIs(t *testing.T) {
	for name, pods := range map[string][2]*noreroute.PodSet{
		"both": {complete(), complete()}, "EgressIP": {complete(), nil}, "EgressService": {nil, complete()},
	} {
		w := newWorld(t)
		c, stop := w.start(pods[0], pods[1])
		w.seeded(c)
		got := w.nb.DumpFeature(noreroute.Feature)
		if p, s := strings.Count(got, "Logical_Router_Policy"), strings.Count(got, "Address_Set"); p != 6 || s != 6 {
			t.Errorf("%s: %d policies, want 6; %d address sets, want 6:\n%s", name, p, s, got)
		}
		stop()
		writes := w.nb.Writes()
		c, stop = w.start(pods[0], pods[1])
		w.seeded(c)
		if n := w.nb.Writes() - writes; n != 0 {
			t.Errorf("%s: a restart wrote %d times", name, n)
		}
		stop()
		c, _ = w.start(nil, nil)
		w.seeded(c)
		if got := w.nb.DumpFeature(noreroute.Feature); got != "" {
			t.Errorf("%s: left over:\n%s", name, got)
		}
	}
}

// TestChangesAreOneTransaction: adding a pod or a host updates one row.
func TestChangesAreOneTransaction(t *testing.T) {
	w := newWorld(t)
	pods := complete("10.244.0.5")
	c, _ := w.start(nil, pods)
	w.seeded(c)
	writes, stats := w.nb.Writes(), w.nb.Stats()

	pods.Set("ns/b", []netip.Addr{addr("10.244.1.9")})
	w.eventually("the pod", func(d string) bool {
		return strings.Contains(set(d, noreroute.EgressServicePods), "[10.244.0.5, 10.244.1.9]")
	})
	if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), node("n3", "172.18.0.5/16"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the node", func(d string) bool {
		return strings.Contains(set(d, noreroute.NodeIPs), "[172.18.0.3, 172.18.0.4, 172.18.0.5]")
	})
	if err := w.kube.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the node to go", func(d string) bool {
		return strings.Contains(set(d, noreroute.NodeIPs), "[172.18.0.4, 172.18.0.5]")
	})
	apiServer := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.10"}}}}
	if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Create(t.Context(), apiServer, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the API server, which is no node", func(d string) bool {
		return strings.Contains(set(d, noreroute.NodeIPs), "[172.18.0.4, 172.18.0.5, 203.0.113.10]")
	})
	if n, s := w.nb.Writes()-writes, w.nb.Stats(); n != 4 || s.Updated-stats.Updated != 4 || s.Inserted != stats.Inserted {
		t.Errorf("%d transactions, rows %+v before and %+v after", n, stats, s)
	}
}

// TestRestartKeepsPods: until the feature has reported its pods, the set stays.
func TestRestartKeepsPods(t *testing.T) {
	w := newWorld(t)
	c, stop := w.start(nil, complete("10.244.0.5", "10.244.0.6"))
	w.seeded(c)
	stop()

	pods := noreroute.NewPodSet()
	c, _ = w.start(nil, pods)
	w.seeded(c)
	writes := w.nb.Writes()
	pods.Set("ns/10.244.0.5", []netip.Addr{addr("10.244.0.5")}) // the first object is set
	if _, err := w.kube.CoreV1().Nodes().Create(t.Context(), node("n3", "172.18.0.5/16"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the node", func(d string) bool { return strings.Contains(set(d, noreroute.NodeIPs), "172.18.0.5") })
	if got := set(w.nb.Dump(), noreroute.EgressServicePods); !strings.Contains(got, "[10.244.0.5, 10.244.0.6]") {
		t.Errorf("pods lost before all were told: %s", got)
	}
	if n := w.nb.Writes() - writes; n != 1 {
		t.Errorf("%d writes for one node", n)
	}
	pods.MarkSynced()
	w.eventually("the pod that is gone to go", func(d string) bool {
		return strings.Contains(set(d, noreroute.EgressServicePods), "[10.244.0.5]")
	})
}

// TestPodsAreAddedBeforeAllAreTold: an object that fails does not delay others.
func TestPodsAreAddedBeforeAllAreTold(t *testing.T) {
	w := newWorld(t)
	c, stop := w.start(nil, complete("10.244.0.5"))
	w.seeded(c)
	stop()
	pods := noreroute.NewPodSet()
	c, _ = w.start(nil, pods)
	w.seeded(c)
	pods.Set("ns/new", []netip.Addr{addr("10.244.0.7")})
	w.eventually("the new pod beside the one that is not told yet", func(d string) bool {
		return strings.Contains(set(d, noreroute.EgressServicePods), "[10.244.0.5, 10.244.0.7]")
	})
}

// TestOrder: policies never exist without the sets that they refer to.
func TestOrder(t *testing.T) {
	w := newWorld(t)
	broken := true
	var mu sync.Mutex
	w.nb.FailWith(func(o nb.Owner) error {
		mu.Lock()
		defer mu.Unlock()
		if broken && o == noreroute.NodeIPs.Owner() {
			return errors.New("no leader")
		}
		return nil
	})
	c, stop := w.start(nil, complete())
	w.eventually("the first sets", func(d string) bool { return strings.Count(d, "Address_Set") == 4 })
	if got := w.nb.Dump(); strings.Contains(got, "Logical_Router_Policy") {
		t.Errorf("policies before their sets:\n%s", got)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	w.seeded(c)
	stop()

	asked := make(chan struct{})
	var once sync.Once
	w.nb.FailWith(func(o nb.Owner) error {
		if o == noreroute.PolicyOwner {
			once.Do(func() { close(asked) })
			return errors.New("no leader")
		}
		return nil
	})
	w.start(nil, nil)
	<-asked
	if got := w.nb.DumpFeature(noreroute.Feature); strings.Count(got, "Address_Set") != 6 {
		t.Errorf("sets gone before the policies:\n%s", got)
	}
}

// TestRouterComesLater: the policies are written once the router exists, and restored if
// someone else removes them.
func TestRouterComesLater(t *testing.T) {
	w := newWorld(t)
	if _, err := w.nb.Apply(t.Context(), nb.Owner{Feature: "network"}, nil); err != nil {
		t.Fatal(err)
	}
	c, _ := w.start(nil, complete())
	w.eventually("the sets", func(d string) bool { return strings.Count(d, "Address_Set") == 6 })
	w.router()
	w.seeded(c)
	policy := noreroute.PolicyRows(network)[0].ID
	if !w.nb.Remove(noreroute.PolicyOwner, nbdb.LogicalRouterPolicyTable, policy) {
		t.Fatal("no policy to remove")
	}
	w.eventually("the policy to come back", func(d string) bool { return strings.Count(d, "Logical_Router_Policy") == 6 })
}
