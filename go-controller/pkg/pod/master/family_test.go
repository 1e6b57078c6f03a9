package master

import (
	"context"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
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
