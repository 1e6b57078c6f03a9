package master

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// message returns the message of the condition of a node.
func (c *cluster) message(name string) string {
	c.t.Helper()
	for _, n := range c.nodes() {
		if n.Name == name {
			have, _ := condition(&n)
			return have.Message
		}
	}
	return ""
}

// leftByNextMaster starts another master, which must neither change the condition of a node nor write
// the node at all.
func (c *cluster) leftByNextMaster(cfg network.Config, node, condition string) {
	c.t.Helper()
	c.stop()
	patches := c.patches(node)
	c.start(cfg)
	c.addNode("z", 9)
	c.wait("the last node", func() bool { return strings.Contains(c.status("z"), network.ReasonReady) })
	if got, n := c.status(node), c.patches(node)-patches; !strings.Contains(got, condition) || n > 0 {
		c.t.Errorf("after a restart and %d patches node %s is %s, want %s", n, node, got, condition)
	}
}

// TestNodesThatAreCopies: of two nodes with the same system-id, the later one is reported as
// without network, whether it had another ID before or none, and as available again once its
// Open vSwitch has another ID. The other node keeps what it has.
func TestNodesThatAreCopies(t *testing.T) {
	for _, ran := range []bool{true, false} {
		c, cfg := newCluster(t), config("10.244.0.0/16")
		c.addNode("a", 2)
		if ran {
			c.addNode("b", 3)
		}
		c.start(cfg)
		c.wait("the network of a", func() bool { return strings.Contains(c.status("a"), "False "+network.ReasonReady) })
		if ran {
			c.wait("the network of b", func() bool { return strings.Contains(c.status("b"), "False "+network.ReasonReady) })
			c.edit("b", kube.AnnotationChassisID, "chassis-a")
		} else {
			c.addNode("b", 3, annotated(kube.AnnotationChassisID, "chassis-a"))
		}
		c.wait("the copy to be told", func() bool { return strings.Contains(c.status("b"), "True "+network.ReasonRefused) })
		if m := c.message("b"); !strings.Contains(m, kube.AnnotationChassisID) || !strings.Contains(m, "chassis-a belongs to node a") {
			t.Errorf("told %q", m)
		}
		c.leftByNextMaster(cfg, "b", "True "+network.ReasonRefused)
		c.edit("b", kube.AnnotationChassisID, "chassis-b")
		c.wait("the network of b", func() bool { return strings.Contains(c.status("b"), "False "+network.ReasonReady) })
		if got := c.status("a"); !strings.Contains(got, "False "+network.ReasonReady) {
			t.Errorf("the node that was there before is %s", got)
		}
		if events := c.drainEvents(); !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, network.ReasonRefused) }) {
			t.Errorf("Events %q do not tell", events)
		}
		c.stop()
	}
}

// TestRefusedHostAddresses: a node has its network even though its list of host addresses is
// refused.
func TestRefusedHostAddresses(t *testing.T) {
	c, cfg := newCluster(t), config("10.244.0.0/16")
	c.start(cfg)
	c.addNode("a", 2, annotated(kube.AnnotationHostAddresses, "["))
	if e := eventually.Receive(t, "an Event", c.events.Events); !strings.Contains(e, kube.AnnotationHostAddresses) {
		t.Errorf("Event %q", e)
	}
	c.wait("its network", func() bool { return strings.Contains(c.status("a"), "False "+network.ReasonReady) })
	c.leftByNextMaster(cfg, "a", "False "+network.ReasonReady) // when a master starts, what is refused counts as lasting at once
}

// TestFailingNetwork: a node that reports that it fails to connect itself, whether it did before or
// not, has this in its condition until it reports it no longer. The rows stay.
func TestFailingNetwork(t *testing.T) {
	for _, worked := range []bool{true, false} {
		c, cfg := newCluster(t), config("10.244.0.0/16")
		c.start(cfg)
		if worked {
			c.addNode("a", 2)
			c.wait("its network", func() bool { return strings.Contains(c.status("a"), "False "+network.ReasonReady) })
			c.edit("a", kube.AnnotationNetworkFailure, "the external bridge:\nno uplink")
		} else {
			c.addNode("a", 2, annotated(kube.AnnotationNetworkFailure, "the external bridge:\nno uplink"),
				func(n *corev1.Node) { delete(n.Annotations, kube.AnnotationL3Gateway) })
		}
		c.wait("the failure", func() bool { return strings.Contains(c.status("a"), "True "+network.ReasonFailing) })
		if got := c.message("a"); got != "the external bridge: no uplink" {
			t.Errorf("the condition says %q", got)
		}
		c.waitFresh(cfg) // its rows stay as they are
		c.leftByNextMaster(cfg, "a", "True "+network.ReasonFailing)
		c.edit("a", kube.AnnotationNetworkFailure, "")
		c.wait("the end of the failure", func() bool { return !strings.Contains(c.status("a"), network.ReasonFailing) })
		if got := c.status("a"); worked != strings.Contains(got, "False "+network.ReasonReady) {
			t.Errorf("when it fails no longer the node is %q", got)
		}
		c.stop()
	}
}
