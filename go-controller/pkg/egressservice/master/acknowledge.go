package master

import (
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
)

// noteAcknowledgement records the acknowledgement of the host, and triggers placement
// when the host takes too long, or has acknowledged after all.
func (c *Controller) noteAcknowledgement(s egressservice.Service, d egressservice.Decision) {
	c.mu.Lock()
	before, known := c.acks[s.Key]
	c.acks[s.Key] = s.Ack
	c.mu.Unlock()
	if known && !egressservice.SameAcknowledgement(before, s.Ack) {
		c.ackTimeouts.SetPending(s.Key, nil) // endpoints may change all the time: a new acknowledgement counts as progress
		if s.Ack.Host != "" && c.ackTimeouts.Acknowledged(s.Ack.Host) {
			c.placement.Enqueue(all)
		}
	}
	var pending []health.PendingAck
	if egressservice.Awaits(s, d) {
		if s.Host != d.Host {
			return // the host cannot know yet; the event of our write enqueues the key
		}
		// No digest, so that a silent host does not get more time with each change.
		pending = []health.PendingAck{{Node: d.Host, What: "rules"}}
	}
	timedOut, again := c.ackTimeouts.SetPending(s.Key, pending)
	if again > 0 {
		c.services.EnqueueAfter(again, s.Key)
	}
	for _, node := range timedOut {
		klog.InfoS("Node does not acknowledge the rules of an EgressService", "node", node, "egressService", s.Key, "within", c.deps.Acknowledge)
	}
	if late := len(pending) > 0 && c.ackTimeouts.TimedOut(d.Host); late != d.NotAcknowledging {
		c.placement.Enqueue(all)
	}
}
