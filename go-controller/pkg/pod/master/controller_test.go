package master

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
)

func TestPodsGetAddressesAndPorts(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24", "fd00:10:244:2::/64")
	c.addPod("a", "n")
	c.addPod("host", "n", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	c.addPod("done", "n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	c.addPod("unscheduled", "")
	c.start(pod.Config{})
	c.waitPort("a", "10.244.1.3 fd00:10:244:2::3")
	c.addPod("b", "n")
	c.waitPort("b", "10.244.1.4 fd00:10:244:2::4")
	c.stop()
	const want = `{"default":{"ip_addresses":["10.244.1.3/24","fd00:10:244:2::3/64"],"mac_address":"0a:58:0a:f4:01:03","gateway_ips":["10.244.1.1","fd00:10:244:2::1"]}}`
	if got := c.getPod("a").Annotations[kube.AnnotationPodNetworks]; got != want {
		t.Errorf("annotation of a:\n got %s\nwant %s", got, want)
	}
	if got := c.podPatches(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("patched %v, want a and b, once each", got)
	}
	if got := c.nb.DumpFeature(pod.Feature); strings.Count(got, "\n") != 2 {
		t.Errorf("rows:\n%s", got)
	}
}

func TestRestartWritesNothing(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	for i := range 20 {
		c.addPod(fmt.Sprint("p", i), "n")
	}
	c.start(pod.Config{})
	c.wait("all ports", func() bool { return len(c.nb.Owners(pod.Feature)) == 20 })
	c.stop()
	writes, patches := c.nb.Writes(), len(c.podPatches())
	c.start(pod.Config{})
	c.addPod("last", "n")
	c.wait("the last port", func() bool { return c.port("last") != "-" })
	c.stop()
	if n := c.nb.Writes() - writes; n != 1 {
		t.Errorf("%d transactions after a restart, want the new pod's", n)
	}
	if got := c.podPatches()[patches:]; !slices.Equal(got, []string{"last"}) {
		t.Errorf("patched %v after a restart, want the new pod", got)
	}
}

func TestAnnotationIsWrittenBeforeThePort(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	var early atomic.Bool
	c.cs.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		early.Store(early.Load() || c.port("a") != "-")
		return false, nil, nil
	})
	c.addPod("a", "n")
	c.start(pod.Config{})
	c.waitPort("a", "10.244.1.3")
	if early.Load() {
		t.Error("there was a port before its address was recorded")
	}
}

// A crash between annotation and port, or between the end of the pod and the
// end of its port, is recovered from.
func TestCrashesInBetween(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.nb.FailWith(func(o nb.Owner) error {
		if o.Feature == pod.Feature {
			return errors.New("database is away")
		}
		return nil
	})
	c.addPod("a", "n")
	c.start(pod.Config{})
	c.wait("the annotation", func() bool { return c.getPod("a").Annotations != nil })
	c.stop()
	c.nb.FailWith(nil)
	c.addPod("b", "n")
	c.start(pod.Config{})
	// Only the annotation has the address intended for a, so it is undetermined which pod gets which
	// address.
	c.wait("ports and annotations that agree", func() bool {
		ports := []string{c.port("a"), c.port("b")}
		for i, name := range []string{"a", "b"} {
			network, _, err := kube.PodNetwork(c.getPod(name))
			if err != nil || len(network.Addrs) != 1 || network.Addrs[0].Addr().String() != ports[i] {
				return false
			}
		}
		slices.Sort(ports)
		return slices.Equal(ports, []string{"10.244.1.3", "10.244.1.4"})
	})
	c.stop()
	c.deletePod("a")
	c.start(pod.Config{})
	c.waitPort("a", "-")
	// Addresses are assigned in turn, and both were in use when the controller started:
	// the port of a kept its address until it was deleted.
	c.addPod("c", "n")
	c.waitPort("c", "10.244.1.5")
}

func TestFinishedPodsGiveUpTheirAddress(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/29") // .3 to .6
	for i := range 4 {
		c.addPod(fmt.Sprint("p", i), "n")
	}
	c.start(pod.Config{})
	c.wait("four ports", func() bool { return len(c.nb.Owners(pod.Feature)) == 4 })
	c.addPod("late", "n")
	c.waitEvent("Warning NoAddressAvailable no free pod address: node n")
	if p := c.port("late"); p != "-" {
		t.Fatalf("a pod of a full node has port %s", p)
	}
	freed := c.port("p2")
	c.setPhase("p2", corev1.PodSucceeded)
	c.waitPort("late", freed)
	c.waitPort("p2", "-")
	// The finished pod's annotation claims nothing, not even after a restart.
	c.stop()
	c.start(pod.Config{})
	c.addPod("later", "n")
	c.waitEvent("NoAddressAvailable")
	freed = c.port("p1")
	c.deletePod("p1")
	c.waitPort("later", freed)
}

func TestPodIsMadeAnewUnderItsName(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.addNode("m", "10.244.2.0/24")
	c.addPod("db-0", "n")
	c.start(pod.Config{})
	c.waitPort("db-0", "10.244.1.3")
	c.deletePod("db-0")
	c.addPod("db-0", "m")
	c.waitPort("db-0", "10.244.2.3")
	c.stop()
	c.deletePod("db-0") // while no controller runs
	c.addPod("db-0", "n")
	c.start(pod.Config{})
	c.waitPort("db-0", "10.244.1.3")
	ids := c.nb.Rows(pod.Owner("ns/db-0"))[0].Model.(*nbdb.LogicalSwitchPort).Options["iface-id-ver"]
	if want := string(c.getPod("db-0").UID); ids != want {
		t.Errorf("iface-id-ver %s, want %s", ids, want)
	}
}

func TestOfTwoPodsWithOneAddressTheRunningOneKeeps(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.addPod("older", "n", having("10.244.1.9/24"))
	c.addPod("running", "n", having("10.244.1.9/24"), isRunning)
	c.addPod("also-running", "n", having("10.244.1.9/24"), isRunning)
	c.addPod("elsewhere", "n", having("10.9.9.9/24"), isRunning)
	c.start(pod.Config{})
	c.waitPort("running", "10.244.1.9")
	c.waitPort("older", "10.244.1.10")
	c.waitEvent("AddressRefused")
	for _, name := range []string{"also-running", "elsewhere"} {
		if p := c.port(name); p != "-" {
			t.Errorf("%s has port %s: it cannot be reached at another address", name, p)
		}
	}
	c.deletePod("running")
	// According to the kubelet both run with that address: the first one gets it.
	c.wait("one of the others to have the address", func() bool {
		return (c.port("also-running") == "10.244.1.9") != (c.port("elsewhere") == "10.244.1.9")
	})
}

func TestTamperedAnnotationIsRestored(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.addPod("a", "n")
	c.start(pod.Config{})
	c.waitPort("a", "10.244.1.3")
	c.wait("the annotation", func() bool { return c.getPod("a").Annotations != nil })
	good := c.getPod("a").Annotations[kube.AnnotationPodNetworks]
	for _, bad := range []string{`null`, `"{"`, `"{\"default\":{\"ip_addresses\":[\"10.244.1.3/24\"],\"mac_address\":\"no\"}}"`} {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, kube.AnnotationPodNetworks, bad)
		_, err := c.cs.CoreV1().Pods("ns").Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.wait("the annotation to be restored after "+bad, func() bool {
			return c.getPod("a").Annotations[kube.AnnotationPodNetworks] == good
		})
		c.waitPort("a", "10.244.1.3")
	}
}

// An annotation that is removed while the controller is busy equals its state before
// it was written; the write in between must not be missed.
func TestAnnotationThatIsTakenAwayAtOnceIsRestored(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.addPod("a", "n")
	busy, idle := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.writer = &slowWriter{c.nb, func(o nb.Owner) {
		if o == pod.Owner("ns/a") {
			once.Do(func() { close(busy); <-idle })
		}
	}}
	c.start(pod.Config{})
	<-busy
	good := c.getPod("a").Annotations[kube.AnnotationPodNetworks]
	if good == "" {
		t.Fatal("the port is written before the annotation")
	}
	shown := func() string {
		p, err := c.pods.Pods("ns").Get("a")
		if err != nil {
			t.Fatal(err)
		}
		return p.Annotations[kube.AnnotationPodNetworks]
	}
	c.wait("the lister to show the annotation", func() bool { return shown() == good })
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, kube.AnnotationPodNetworks)
	if _, err := c.cs.CoreV1().Pods("ns").Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.wait("the lister to show that it is gone", func() bool { return shown() == "" })
	close(idle)
	c.wait("the annotation to be restored", func() bool { return c.getPod("a").Annotations[kube.AnnotationPodNetworks] == good })
}

// slowWriter runs a function before it applies.
type slowWriter struct {
	Writer
	before func(nb.Owner)
}

func (w *slowWriter) Apply(ctx context.Context, o nb.Owner, want []nb.Row) (nb.Stats, error) {
	w.before(o)
	return w.Writer.Apply(ctx, o, want)
}

func TestTranslationFollowsTheGateway(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24", "fd00::/64")
	c.addPod("a", "n")
	c.start(pod.Config{DisableSNATMultipleGWs: true})
	c.waitPort("a", "10.244.1.3 fd00::3")
	if n := strings.Count(c.nb.Dump(), "type=snat"); n != 2 {
		t.Errorf("%d translations, want one a family:\n%s", n, c.nb.Dump())
	}
	// The router is deleted, by somebody or with the node.
	c.nb.Remove(nb.Owner{Feature: "network", Object: "n"}, nbdb.LogicalRouterTable, "r")
	c.networkRows("n", true)
	c.wait("the translations", func() bool { return strings.Count(c.nb.Dump(), "type=snat") == 2 })
}

func TestNodeComesAfterItsPods(t *testing.T) {
	c := newCluster(t)
	c.addPod("a", "n")
	c.start(pod.Config{})
	c.addNode("n")
	c.setSubnets("n", "10.244.1.0/24")
	c.waitPort("a", "10.244.1.3")
	c.setSubnets("n")
	c.waitPort("a", "-")
	c.addPod("b", "n")
	c.setSubnets("n", "10.244.1.0/24")
	c.waitPort("a", "10.244.1.3")
	c.waitPort("b", "10.244.1.4")
	// Other subnets: a pod that does not run yet moves.
	c.setSubnets("n", "10.9.0.0/24")
	c.wait("both pods to move", func() bool {
		return strings.HasPrefix(c.port("a"), "10.9.0.") && strings.HasPrefix(c.port("b"), "10.9.0.")
	})
}

// fresh returns the rows that a controller starting now with an empty database would
// write: a pure function of nodes and annotated pods. It returns false if a pod
// that is to have an annotation does not have its own yet.
func (c *cluster) fresh() (string, bool) {
	c.t.Helper()
	w := nbfake.New()
	w.AnyParent = true
	nodes, err := c.cs.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	pods, err := c.cs.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	seen := map[netip.Addr]bool{}
	for _, n := range nodes.Items {
		node, err := kube.Node(&n)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, p := range pods.Items {
			if p.Spec.NodeName != n.Name || !kube.NeedsNetwork(&p) || len(node.Subnets) == 0 {
				continue
			}
			network, ok, err := kube.PodNetwork(&p)
			if err != nil || !ok || !node.Subnets[0].Contains(network.Addrs[0].Addr()) {
				return "", false
			}
			if _, taken := seen[network.Addrs[0].Addr()]; taken {
				// One was annotated by a controller that stopped before it wrote the
				// port: it will get another address, and has none until then.
				return "", false
			}
			seen[network.Addrs[0].Addr()] = true
			rows := pod.Rows(pod.Config{}, pod.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Network: network}, node)
			if _, err := w.Apply(context.Background(), pod.Owner(kube.PodKey(&p)), rows); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	return w.DumpFeature(pod.Feature), true
}

// noneTwice fails if two ports have the same address, from one snapshot of the database.
func (c *cluster) noneTwice() {
	c.t.Helper()
	all := c.nb.DumpFeature(pod.Feature)
	has := map[string]bool{}
	for _, addrs := range portAddresses.FindAllString(all, -1) {
		if has[addrs] {
			c.t.Fatalf("two ports have %s:\n%s", addrs, all)
		}
		has[addrs] = true
	}
}

// portAddresses matches the addresses of a port in a dump.
var portAddresses = regexp.MustCompile(` addresses=\[[^]]*\]`)

// Whatever the history, and however often the controller restarts: the
// final state is that of a fresh start, and no address is assigned twice.
func TestPathIndependence(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 10 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			c := newCluster(t)
			c.addNode("n", "10.244.1.0/24", "fd00::/64")
			c.addNode("m", "10.244.2.0/24", "fd01::/64")
			c.start(pod.Config{})
			settled := func() bool {
				want, ok := c.fresh()
				return ok && c.nb.DumpFeature(pod.Feature) == want
			}
			names := []string{"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"}
			for range 60 {
				c.noneTwice()
				name := names[rng.IntN(len(names))]
				p := c.getPod(name)
				switch rng.IntN(8) {
				case 0:
					c.stop()
					c.start(pod.Config{})
				case 1:
					c.wait("a fresh start's rows", settled)
				case 2:
					if p != nil {
						c.setPhase(name, corev1.PodFailed)
					}
				case 3:
					c.setSubnets("m")
					c.setSubnets("m", "10.244.2.0/24", "fd01::/64")
				default:
					if p != nil {
						c.deletePod(name)
					}
					if rng.IntN(4) > 0 {
						c.addPod(name, []string{"n", "m"}[rng.IntN(2)])
					}
				}
			}
			c.wait("a fresh start's rows", settled)
		})
	}
}

// TestManyAtOnce: at a start the pods of a node are written in few transactions, for which the
// writer needs many concurrent callers: it combines all their changes.
func TestManyAtOnce(t *testing.T) {
	const many = 60
	c := newCluster(t)
	c.addNode("n", "10.244.0.0/16")
	for i := range many {
		c.addPod(fmt.Sprint("p", i), "n")
	}
	w := &gathering{Writer: c.nb, all: make(chan struct{}), missing: many}
	c.writer = w
	c.start(pod.Config{})
	c.wait("all ports", func() bool { return len(c.nb.Owners(pod.Feature)) == many })
}

// gathering is a writer that returns to its callers only when all have called.
type gathering struct {
	Writer
	mu      sync.Mutex
	missing int
	all     chan struct{}
}

func (g *gathering) Apply(ctx context.Context, o nb.Owner, rows []nb.Row) (nb.Stats, error) {
	g.mu.Lock()
	if g.missing--; g.missing == 0 {
		close(g.all)
	}
	g.mu.Unlock()
	select {
	case <-g.all:
	case <-ctx.Done():
		return nb.Stats{}, ctx.Err()
	}
	return g.Writer.Apply(ctx, o, rows)
}
