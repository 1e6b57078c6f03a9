package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// patience bounds waits on conditions; it is never waited for in a passing run.
const patience = 20 * time.Second

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func config(cidr4 string) network.Config {
	return network.Config{
		ClusterSubnets: []network.ClusterSubnet{
			{CIDR: pfx(cidr4), HostPrefixLen: 24}, {CIDR: pfx("fd00:10:244::/48"), HostPrefixLen: 64},
		},
		JoinSubnets: []netip.Prefix{pfx("100.64.0.0/16"), pfx("fd98::/64")},
	}
}

// cluster is an API server and a northbound database that outlive controllers.
type cluster struct {
	t      *testing.T
	cs     *fake.Clientset
	nb     *nbfake.Writer
	events *record.FakeRecorder
	uid    int
	global atomic.Int32
	// watching gets a value when an informer has begun to watch: the fake API
	// server forgets what happens between an informer's list and its watch.
	watching chan struct{}
	stop     func()
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, cs: fake.NewClientset(), nb: nbfake.New(), events: record.NewFakeRecorder(1000), watching: make(chan struct{}, 100)}
	c.cs.PrependWatchReactor("nodes", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.cs.Tracker().Watch(a.GetResource(), a.GetNamespace())
		c.watching <- struct{}{}
		return true, w, err
	})
	// Like a real server, refuse a patch that was meant for an earlier object of
	// the same name.
	c.cs.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		var patch struct{ Metadata struct{ UID types.UID } }
		if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
			return true, nil, err
		}
		name := a.(clienttesting.PatchAction).GetName()
		have, err := c.cs.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", name)
		if uid := patch.Metadata.UID; err == nil && uid != "" && uid != have.(*corev1.Node).UID {
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), name, errors.New("uid differs"))
		}
		return false, nil, nil
	})
	t.Cleanup(func() {
		if c.stop != nil {
			c.stop()
		}
	})
	return c
}

// start runs a controller; stop ends it and waits until it has returned.
func (c *cluster) start(cfg network.Config) *Controller {
	c.t.Helper()
	factory := kube.NewInformers(c.cs)
	ctl, err := New(Deps{
		Client: c.cs, Nodes: factory.Core().V1().Nodes(), Writer: c.nb, Recorder: c.events, Config: cfg,
		SetGlobal: func(context.Context, string, map[string]string) error { c.global.Add(1); return nil },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	<-c.watching
	done := make(chan error, 1)
	go func() { done <- ctl.Run(ctx) }()
	c.stop = func() {
		c.stop = nil
		cancel()
		<-done // with an error where it was stopped before it had begun
		factory.Shutdown()
	}
	return ctl
}

// addNode creates a node that has told everything about itself; change may
// take some of it back.
func (c *cluster) addNode(name string, host int, change ...func(*corev1.Node)) {
	c.t.Helper()
	c.uid++
	addrs := []netip.Prefix{pfx(fmt.Sprintf("172.18.0.%d/16", host)), pfx(fmt.Sprintf("fc00::%x/64", host))}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprint("uid-", c.uid)),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(1e9+c.uid), 0)),
		Annotations: map[string]string{
			kube.AnnotationChassisID:     "chassis-" + name,
			kube.AnnotationManagementMAC: fmt.Sprintf("0a:58:00:00:01:%02x", host),
			kube.AnnotationPrimaryIfAddr: kube.FormatPrimaryIfAddr(addrs),
			kube.AnnotationL3Gateway: kube.FormatL3Gateway(topology.Gateway{
				Mode: topology.GatewayShared, InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("02:42:ac:12:00:%02x", host),
				Addrs: addrs, NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("fc00::1")},
			}),
		},
	}}
	for _, f := range change {
		f(n)
	}
	if _, err := c.cs.CoreV1().Nodes().Create(c.t.Context(), n, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

func (c *cluster) deleteNode(name string) {
	c.t.Helper()
	if err := c.cs.CoreV1().Nodes().Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) nodes() []corev1.Node {
	c.t.Helper()
	list, err := c.cs.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// status shows what a node was assigned and its condition.
func (c *cluster) status(name string) string {
	c.t.Helper()
	for _, n := range c.nodes() {
		if n.Name == name {
			node, _ := kube.Node(&n)
			have, _ := condition(&n)
			return fmt.Sprint(node.Subnets, " ", node.Join, " ", have.Status, " ", have.Reason)
		}
	}
	return "gone"
}

func (c *cluster) wait(what string, ok func() bool) {
	c.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("waited in vain for %s; nodes:\n%s\nrows:\n%s", what, c.describe(), c.nb.Dump())
		}
	}
}

func (c *cluster) describe() string {
	var out []string
	for _, n := range c.nodes() {
		out = append(out, n.Name+" "+c.status(n.Name))
	}
	return strings.Join(out, "\n")
}

func (c *cluster) waitStatus(name, want string) {
	c.t.Helper()
	c.wait(name+" to be "+want, func() bool { return c.status(name) == want })
}

// fresh is what a controller that starts now with an empty database would
// write: a pure function of the nodes.
func (c *cluster) fresh(cfg network.Config) string {
	c.t.Helper()
	w := nbfake.New()
	nodes := c.nodes()
	assigned := map[string]network.Assignment{}
	for i := range nodes {
		node, err := kube.Node(&nodes[i])
		if err != nil {
			c.t.Fatal(err)
		}
		assigned[node.Name] = network.Assignment{Subnets: node.Subnets, Join: node.Join}
	}
	apply := func(object string, rows []nb.Row) {
		if _, err := w.Apply(context.Background(), network.Owner(object), rows); err != nil {
			c.t.Fatal(err)
		}
	}
	apply("", network.ClusterRows(cfg, assigned))
	for i := range nodes {
		node, _ := kube.Node(&nodes[i])
		apply(node.Name, network.NodeRows(cfg, node))
	}
	return w.Dump()
}

// waitFresh waits until every node is assigned everything and the database is
// as a fresh start would make it.
func (c *cluster) waitFresh(cfg network.Config) {
	c.t.Helper()
	c.wait("the rows of a fresh start", func() bool {
		for _, n := range c.nodes() {
			if _, ok := n.Annotations[kube.AnnotationNodeSubnets]; !ok {
				return false
			}
		}
		return c.nb.Dump() == c.fresh(cfg)
	})
}

// patches counts the requests that wrote to a node.
func (c *cluster) patches(node string) int {
	n := 0
	for _, a := range c.cs.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() == node {
			n++
		}
	}
	return n
}

func (c *cluster) drainEvents() (events []string) {
	for {
		select {
		case e := <-c.events.Events:
			events = append(events, e)
		default:
			return events
		}
	}
}

func TestNodesAreAssignedAndPlanned(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	c.addNode("ovn-control-plane", 2)
	c.start(cfg)
	c.waitStatus("ovn-control-plane", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.2/16 fd98::2/64] False NetworkReady")
	c.addNode("ovn-worker", 3)
	c.waitStatus("ovn-worker", "[10.244.1.0/24 fd00:10:244:2::/64] [100.64.0.3/16 fd98::3/64] False NetworkReady")
	c.waitFresh(cfg)
	c.stop()
	// One patch of annotations and one of the condition for each node; the
	// cluster's rows were written when it started and when a node joined.
	for _, name := range []string{"ovn-control-plane", "ovn-worker"} {
		if n := c.patches(name); n != 2 {
			t.Errorf("%s was patched %d times, want 2", name, n)
		}
	}
	if n := c.nb.Writes(); n != 4 {
		t.Errorf("%d transactions, want 4: two for the cluster, one for each node", n)
	}
	if c.global.Load() == 0 {
		t.Error("NB_Global was not set")
	}
	if e := c.drainEvents(); len(e) > 0 {
		t.Errorf("events: %v", e)
	}
}

func TestRestartWritesNothing(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	for i, name := range []string{"a", "b", "c"} {
		c.addNode(name, 2+i)
	}
	c.start(cfg)
	c.waitFresh(cfg)
	c.wait("conditions", func() bool { return strings.Count(c.describe(), "NetworkReady") == 3 })
	c.stop()

	before, actions := c.nb.Writes(), len(c.cs.Actions())
	c.start(cfg)
	// Keys are worked in order: when a node that came later is done, and the
	// controller has returned, so is all that start-up asked for.
	c.addNode("zz", 9)
	c.wait("the last node", func() bool { return strings.Contains(c.status("zz"), "NetworkReady") })
	c.stop()
	if n := c.nb.Writes() - before; n != 2 {
		t.Errorf("%d transactions after a restart, want the new node's 2", n)
	}
	for _, a := range c.cs.Actions()[actions:] {
		if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() != "zz" {
			t.Errorf("restart patched node %s: %s", p.GetName(), p.GetPatch())
		}
	}
}

func TestExhaustedSpaceHealsWhenANodeGoes(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/23")
	for i, name := range []string{"a", "b", "c"} {
		c.addNode(name, 2+i)
	}
	c.start(cfg)
	c.waitStatus("c", "[] [100.64.0.4/16 fd98::4/64] True NoSubnetAvailable")
	c.deleteNode("a")
	c.waitStatus("c", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.4/16 fd98::4/64] False NetworkReady")
	c.waitFresh(cfg)
	c.stop()
	want := []string{"Warning NoSubnetAvailable no free node subnet in 10.244.0.0/23 (2 subnets of /24)"}
	if got := c.drainEvents(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestExhaustedSpaceHealsWithALargerConfiguration(t *testing.T) {
	c := newCluster(t)
	c.addNode("a", 2)
	c.addNode("b", 3)
	c.start(config("10.244.0.0/24"))
	c.waitStatus("b", "[] [100.64.0.3/16 fd98::3/64] True NoSubnetAvailable")
	c.stop()
	cfg := config("10.244.0.0/16")
	c.start(cfg)
	c.waitStatus("b", "[10.244.1.0/24 fd00:10:244:2::/64] [100.64.0.3/16 fd98::3/64] False NetworkReady")
	c.waitStatus("a", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.2/16 fd98::2/64] False NetworkReady")
	c.waitFresh(cfg)
}

func TestOfTwoNodesWithOneSubnetTheOlderKeeps(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	same := annotated(kube.AnnotationNodeSubnets, `{"default":["10.244.5.0/24","fd00:10:244:6::/64"]}`)
	c.addNode("older", 2, same)
	c.addNode("younger", 3, same)
	c.start(cfg)
	c.waitStatus("younger", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.3/16 fd98::3/64] False NetworkReady")
	c.waitStatus("older", "[10.244.5.0/24 fd00:10:244:6::/64] [100.64.0.2/16 fd98::2/64] False NetworkReady")
	c.waitFresh(cfg)
	c.stop()
	want := []string{
		"Warning AddressRefused subnet 10.244.5.0/24 overlaps the subnet of an older node",
		"Warning AddressRefused subnet fd00:10:244:6::/64 overlaps the subnet of an older node",
	}
	if got := c.drainEvents(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestBrokenAnnotationIsReportedAndReplaced(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	c.addNode("a", 2, annotated(kube.AnnotationNodeSubnets, "{"), annotated(kube.AnnotationL3Gateway, `{"default":{"mode":"odd"}}`))
	c.start(cfg)
	c.waitStatus("a", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.2/16 fd98::2/64]  ")
	c.wait("the report", func() bool {
		return slices.ContainsFunc(c.drainEvents(), func(e string) bool { return strings.Contains(e, kube.AnnotationL3Gateway) })
	})
}

func TestNodeIsPlannedAsFarAsItIsKnown(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	c.addNode("a", 2, func(n *corev1.Node) { n.Annotations = nil })
	c.start(cfg)
	c.waitStatus("a", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.2/16 fd98::2/64]  ")
	c.waitFresh(cfg)
	if strings.Contains(c.nb.Dump(), "GR_a") {
		t.Error("a gateway router without a gateway")
	}
	c.patchNode("a", kube.AnnotationChassisID, "chassis-a")
	c.wait("the gateway chassis", func() bool { return strings.Contains(c.nb.Dump(), "rtos-a-chassis-a") })
	c.waitFresh(cfg)
}

func (c *cluster) patchNode(name, key, value string) {
	c.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, key)
	}
	_, err := c.cs.CoreV1().Nodes().Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

func TestFailingPatchesAssignNothingTwice(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	var failures atomic.Int32
	failures.Store(7)
	c.cs.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failures.Add(-1) >= 0, nil, errors.New("not now")
	})
	for i := range 4 {
		c.addNode(fmt.Sprint("n", i), 2+i)
	}
	c.start(cfg)
	c.waitFresh(cfg)
	for i := range 4 {
		c.waitStatus(fmt.Sprint("n", i), fmt.Sprintf(
			"[10.244.%d.0/24 fd00:10:244:%d::/64] [100.64.0.%d/16 fd98::%d/64] False NetworkReady", i, i+1, i+2, i+2))
	}
}

func TestFailingDatabase(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	var failures atomic.Int32
	failures.Store(5)
	c.nb.FailWith(func(nb.Owner) error {
		if failures.Add(-1) >= 0 {
			return errors.New("database is away")
		}
		return nil
	})
	c.addNode("a", 2)
	c.start(cfg)
	c.waitFresh(cfg)
}

func TestDriftIsRepaired(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	c.addNode("a", 2)
	c.start(cfg)
	c.waitFresh(cfg)
	if !c.nb.Remove(network.Owner(""), "Logical_Router", topology.ClusterRouter) {
		t.Fatal("no cluster router")
	}
	c.waitFresh(cfg)
}

func TestDeletionLeavesNothing(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	c.start(cfg)
	c.waitFresh(cfg)
	empty := c.nb.Dump()
	c.addNode("a", 2)
	c.addNode("b", 3)
	c.waitFresh(cfg)
	c.deleteNode("a")
	c.stop() // b goes while nobody looks
	c.deleteNode("b")
	c.start(cfg)
	c.wait("the empty cluster", func() bool { return c.nb.Dump() == empty })
}

// The end of a path depends on where it ends only, not on the way, nor on
// restarts on the way.
func TestPathIndependence(t *testing.T) {
	type state map[string]func(*corev1.Node) // node and what it lacks
	whole := func(*corev1.Node) {}
	noGateway := func(n *corev1.Node) { delete(n.Annotations, kube.AnnotationL3Gateway) }
	other := annotated(kube.AnnotationChassisID, "another")
	states := []state{
		{},
		{"a": noGateway},
		{"a": whole, "b": whole},
		{"a": other, "b": noGateway, "c": whole},
		{"b": whole, "c": whole},
		{"a": whole, "c": other, "d": whole},
	}
	cfg := config("10.244.0.0/22")
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 12 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			path := slices.Clone(states)
			switch {
			case round == 1:
				slices.Reverse(path)
			case round == 2:
				path = path[len(path)-1:]
			case round > 2:
				rng.Shuffle(len(path), func(i, j int) { path[i], path[j] = path[j], path[i] })
			}
			c := newCluster(t)
			c.start(cfg)
			for _, s := range path {
				for _, name := range []string{"a", "b", "c", "d"} {
					lacks, want := s[name]
					if have := c.status(name) != "gone"; have {
						c.deleteNode(name)
					}
					if want {
						c.addNode(name, int(name[0]), lacks)
					}
					switch rng.IntN(6) {
					case 0:
						c.stop()
						c.start(cfg)
					case 1:
						c.waitFresh(cfg)
					}
				}
			}
			c.waitFresh(cfg)
		})
	}
}
