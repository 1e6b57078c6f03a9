package master

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

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
	// Keys are processed in order: when a node that was added later is done, and the
	// controller has returned, so are all keys of the startup.
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
		`Warning AnnotationRefused annotation k8s.ovn.org/node-subnets, value "{\"default\":[\"10.244.5.0/24\",\"fd00:10:244:6::/64\"]}", ` +
			"does not count: 10.244.5.0/24 belongs to node older",
	}
	if got := c.drainEvents(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestBrokenAnnotationIsReportedAndReplaced(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	c.addNode("a", 2, annotated(kube.AnnotationNodeSubnets, "{"), annotated(kube.AnnotationL3Gateway, `{"default":{"mode":"odd"}}`))
	c.start(cfg)
	c.waitStatus("a", "[10.244.0.0/24 fd00:10:244:1::/64] [100.64.0.2/16 fd98::2/64] True AnnotationRefused")
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
	c.stop() // b is deleted while no controller runs
	c.deleteNode("b")
	c.start(cfg)
	c.wait("the empty cluster", func() bool { return c.nb.Dump() == empty })
}

// The result depends only on the last state, not on earlier states or restarts.
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

// TestNodesAreDecodedOnce: an assignment does not decode the annotations of all nodes again.
func TestNodesAreDecodedOnce(t *testing.T) {
	const nodes = 20
	c := newCluster(t)
	for i := range nodes {
		c.addNode(fmt.Sprintf("n%d", i), i+1)
	}
	controller := c.start(config("10.244.0.0/16"))
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		c.wait(name+" to be assigned a subnet", func() bool { return c.annotation(name, kube.AnnotationNodeSubnets) != "" })
	}
	c.stop() // claims is for the worker of one key
	all, err := controller.nodes.List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	read := func() {
		controller.claims(all)
		controller.chassisOf("gone")
	}
	read()
	if each := testing.AllocsPerRun(10, read) / nodes; each > 10 {
		t.Errorf("%.1f allocations for each node", each)
	}
}
