package master

import (
	"context"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// byHand returns a controller whose keys only the test reconciles, after its start.
func (c *cluster) byHand() *Controller {
	c.t.Helper()
	factory := kube.NewInformers(c.cs)
	ctl, err := New(Deps{
		Client: c.cs, Pods: factory.Core().V1().Pods(), Nodes: factory.Core().V1().Nodes(), Writer: c.writer, Recorder: c.events,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, key := range ctl.seeds() {
		c.reconcile(ctl, key)
	}
	return ctl
}

func (c *cluster) reconcile(ctl *Controller, key string) {
	c.t.Helper()
	if err := ctl.reconcile(c.t.Context(), key); err != nil {
		c.t.Fatal(err)
	}
}

// A pod whose key comes before that of its node, when the node has got another subnet, keeps its port:
// it may be running.
func TestPodBeforeItsNode(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "10.244.1.0/24")
	c.addPod("a", "n", reports("10.244.1.3"))
	ctl := c.byHand()
	c.waitPort("a", "10.244.1.3")
	c.setSubnets("n", "10.244.1.0/24", "fd00:10:244:2::/64")
	eventually.True(t, "the lister to have both subnets", func() bool {
		n, err := ctl.nodes.Get("n")
		if err != nil {
			return false
		}
		node, _ := kube.Node(n)
		return len(node.Subnets) == 2
	})
	c.reconcile(ctl, "ns/a")
	if got := c.port("a"); got != "10.244.1.3" {
		t.Errorf("before the node's key, the port of the pod is %s", got)
	}
	c.reconcile(ctl, "n")
	c.reconcile(ctl, "ns/a")
	if got := c.port("a"); got != "10.244.1.3 fd00:10:244:2::3" {
		t.Errorf("after the node's key, the port of the pod is %s", got)
	}
}

// A running pod keeps its MAC address when its node gets IPv4 in addition: nobody changes that of its
// interface. So it does with the next master.
func TestRunningPodGetsIPv4(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "fd00:10:244:2::/64")
	c.addPod("a", "n", reports("fd00:10:244:2::3"))
	c.start(pod.Config{})
	c.wait("a port", func() bool { return c.full("a") == "0a:58:00:00:00:03 fd00:10:244:2::3" })
	c.setSubnets("n", "10.244.1.0/24", "fd00:10:244:2::/64")
	const want = "0a:58:00:00:00:03 10.244.1.3 fd00:10:244:2::3"
	c.wait("both addresses at the MAC address of the pod", func() bool { return c.full("a") == want })
	c.addPod("b", "n")
	c.wait("a port of the next pod", func() bool { return c.full("b") == "0a:58:0a:f4:01:04 10.244.1.4 fd00:10:244:2::4" })
	c.stop()
	writes := c.nb.Writes()
	c.start(pod.Config{})
	<-c.ctl.Attempted()
	if got := c.full("a"); got != want || c.nb.Writes() != writes {
		t.Errorf("after a restart with %d writes the port is %s", c.nb.Writes()-writes, got)
	}
}

// A running pod keeps its port if there is no address of the second family left for it. One that does not run yet
// waits for an address.
func TestRunningPodInFullFamily(t *testing.T) {
	c := newCluster(t)
	c.addNode("n", "fd00:10:244:2::/64")
	c.start(pod.Config{})
	for _, host := range []string{"3", "4", "5", "6", "7"} {
		c.addPod("p"+host, "n", reports("fd00:10:244:2::"+host))
		c.waitPort("p"+host, "fd00:10:244:2::"+host)
	}
	c.addPod("new", "n")
	c.waitPort("new", "fd00:10:244:2::8")
	c.setSubnets("n", "10.244.1.0/29", "fd00:10:244:2::/64") // four addresses
	ports := func() (dual, single, none int) {
		for _, name := range []string{"p3", "p4", "p5", "p6", "p7", "new"} {
			switch strings.Count(c.full(name), " ") {
			case 2:
				dual++
			case 1:
				single++
			default:
				none++
			}
		}
		return dual, single, none
	}
	c.wait("four pods to get a second address", func() bool { dual, _, _ := ports(); return dual == 4 })
	c.waitEvent("NoAddressAvailable")
	running := []string{"p3", "p4", "p5", "p6", "p7"}
	c.wait("both other pods to be reconciled", func() bool {
		_, single, none := ports()
		return single+none == 2 && (c.port("new") == "-" || strings.Contains(c.port("new"), "10.244.1."))
	})
	for _, name := range running {
		if c.port(name) == "-" {
			t.Errorf("%s has no port", name)
		}
	}
}
