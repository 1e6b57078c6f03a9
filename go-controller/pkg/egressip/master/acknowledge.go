package master

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	// maxOtherChassis is the number of other chassis that are asked whether the databases work.
	maxOtherChassis = 8
	// otherChassisTimeout is how long their answers may take.
	otherChassisTimeout = time.Second
)

// checkTimeouts records the acknowledgements that nodes still owe for an EgressIP, and triggers
// placement if some of them take too long. shown are the items that the informer shows: nodes know
// no later ones, and have only their own watches, which are not faster.
func (c *Controller) checkTimeouts(key string, d egressip.Decision, status v1.EgressIPStatus, shown []v1.EgressIPStatusItem) {
	if !equality.Semantic.DeepEqual(shown, status.Items) {
		return // the event of our write enqueues the key
	}
	digest := c.digest(key)
	var pending []health.PendingAck
	for _, ack := range d.PendingAcks(status, digest, c.live) {
		if !c.dead(ack.Node) {
			pending = append(pending, health.PendingAck{Node: ack.Node, What: ack.What})
		}
	}
	timedOut, again := c.ackTimeouts.SetPending(key, pending)
	if again > 0 {
		c.statuses.EnqueueAfter(again, key)
	}
	for _, node := range timedOut {
		klog.InfoS("Node does not acknowledge its assignment", "node", node, "egressIP", key, "within", c.deps.Acknowledge, "pending", pending)
		c.placement.Enqueue(all)
	}
}

// observeStatuses records the status entries of nodes, and reports whether one of them is from a
// node that had timed out.
func (c *Controller) observeStatuses(old, new *v1.EgressIP) bool {
	if old == nil || new == nil || old.UID != new.UID {
		return false
	}
	back := false
	for _, nodeStatus := range new.Status.Programmed {
		if egressip.NodeWrote(old.Status, new.Status, nodeStatus.Node) {
			back = c.ackTimeouts.Acknowledged(nodeStatus.Node) || back
		}
	}
	for _, was := range old.Status.Programmed {
		// The master removes status entries only of dead nodes.
		if _, at := egressip.NodeStatusOf(new.Status, was.Node); at < 0 && !c.dead(was.Node) {
			back = c.ackTimeouts.Acknowledged(was.Node) || back
		}
	}
	return back
}

// digest returns a function that computes the digest of the pods of an EgressIP.
func (c *Controller) digest(key string) func(given []netip.Addr) string {
	return func(given []netip.Addr) string { return c.members.Digest(key, given) }
}

// live returns a node that is not considered dead.
func (c *Controller) live(name string) (topology.Node, bool) {
	n, err := c.deps.Nodes.Lister().Get(name)
	if name == "" || err != nil || c.dead(name) {
		return topology.Node{}, false
	}
	return c.candidate(n), true
}

// waitsFor records that a wait for the chassis of a node begins. Only its end may blame the node.
func (c *Controller) waitsFor(node string) {
	if !c.stuckChassis.IsPending(node) {
		c.stuckChassis.SetPending(node, []health.PendingAck{{Node: node, What: "apply"}})
	}
}

// applies records whether the ovn-controller of a node applies changes. A node is only blamed
// while another one answers: otherwise the databases, or this process, are the cause.
func (c *Controller) applies(node string, does bool) {
	if does {
		if c.stuckChassis.SetPending(node, nil); c.stuckChassis.Acknowledged(node) {
			c.placement.Enqueue(all)
		}
		return
	}
	if timedOut, _ := c.stuckChassis.SetPending(node, []health.PendingAck{{Node: node, What: "apply"}}); len(timedOut) > 0 {
		klog.InfoS("The ovn-controller of a node does not apply changes", "node", node, "within", c.deps.Acknowledge)
		c.placement.Enqueue(all)
	}
}

// othersAnswer reports whether the chassis of any other node has applied what a wait is for.
func (c *Controller) othersAnswer(ctx context.Context, at awaited) bool {
	nodes, err := c.deps.Nodes.Lister().List(labels.Everything())
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, otherChassisTimeout)
	defer cancel()
	answers, queried := make(chan error, maxOtherChassis), 0
	for _, n := range nodes {
		chassis := n.Annotations[kube.AnnotationChassisID]
		if n.Name == at.node || chassis == "" || queried == maxOtherChassis || c.dead(n.Name) {
			continue
		}
		queried++
		go func() { answers <- at.since.applied(ctx, chassis) }()
	}
	for range queried {
		if <-answers == nil {
			return true
		}
	}
	return false
}
