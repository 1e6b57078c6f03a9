package master

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Pending returns the value of the pending annotation for a pod that is about to get its
// addresses: the name of its EgressIP, or "" if the pod need not wait. It fails while that is not known: the pod would
// start, and send with the address of its node.
func (c *Controller) Pending(p *corev1.Pod) (string, error) {
	if err := c.knows(p); err != nil {
		return "", err
	}
	keys := c.choose(p)
	if len(keys) == 0 || !c.mayDiffer(keys[0]) {
		if !isPending(p) { // an earlier attempt to write the annotation may have failed
			c.podStates.notPending(kube.PodKey(p), p.UID)
		}
		return "", nil
	}
	c.podStates.pending(kube.PodKey(p), p.UID)
	return keys[0], nil
}

// mayDiffer reports whether an EgressIP changes how its pods' traffic leaves.
func (c *Controller) mayDiffer(key string) bool {
	d, ok := c.decisions.of(key)
	if !ok || len(d.Nodes()) > 0 {
		return true
	}
	e, err := c.deps.EgressIPs.Lister().Get(key)
	return err == nil && c.decode(e).DropWhenUnavailable
}

// port is the port of a pod, which is written together with the rows that steer the pod's egress
// traffic.
type port struct {
	pod     *corev1.Pod
	addrs   []netip.Addr
	owner   nb.Owner
	rows    []nb.Row
	outcome chan outcome // buffered, so that answer does not block
}

// outcome is the outcome of writing a port.
type outcome struct {
	stats nb.Stats
	err   error
}

// answer reports the outcome to Attach, unless that was done already.
func (p *port) answer(stats nb.Stats, err error) {
	select {
	case p.outcome <- outcome{stats, err}:
	default:
	}
}

// Attach writes the rows of a pod's port. If an EgressIP selects the pod, Attach leaves them to the
// worker of the pod's key, which writes them together with the rows that steer the pod's egress
// traffic, and waits for the outcome. Before the first placement it writes the port alone.
func (c *Controller) Attach(
	ctx context.Context, p *corev1.Pod, network topology.PodNetwork, owner nb.Owner, rows []nb.Row,
) (nb.Stats, error) {
	key := kube.PodKey(p)
	if len(c.choose(p)) == 0 || !c.placed() {
		return c.deps.Writer.Apply(ctx, owner, rows)
	}
	handed := &port{pod: p, owner: owner, rows: rows, outcome: make(chan outcome, 1)}
	for _, a := range network.Addrs {
		handed.addrs = append(handed.addrs, a.Addr())
	}
	c.podStates.hand(key, handed)
	c.pods.Enqueue(key)
	queue.Yield(ctx)
	select {
	case o := <-handed.outcome:
		return o.stats, o.err
	case <-ctx.Done():
		return nb.Stats{}, fmt.Errorf("wait for the rows of pod %s: %w", key, ctx.Err())
	}
}

// placed reports whether the first placement is over. From then on the workers of pods run, or
// soon will; pods that have a port are among their first keys.
func (c *Controller) placed() bool {
	select {
	case <-c.placement.Synced():
		return true
	default:
		return false
	}
}
