package master

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// waiters are the pods that wait, by chassis.
type waiters map[awaited][]waiter

// awaited is a chassis that is waited for.
type awaited struct {
	node string
	// self: it is the pods' own.
	self bool
	// old: what was there before must be out of its memory, too.
	old bool
}

// waiter is a pod that waits for a chassis.
type waiter struct {
	key, what string
	st        *podState
	reached   reached
}

// await has a pod wait for the chassis of a node, or for what it waits for there
// already: then its key comes back, and it sees what is new since.
func (c *Controller) await(w waiters, key, node string, r reached) {
	what := fmt.Sprint(node, r.own, r.portGone)
	st, ok := c.podStates.wait(key, what)
	if !ok {
		return
	}
	at := awaited{node: node, self: r.own || r.portGone, old: r.flushed}
	w[at] = append(w[at], waiter{key, what, st, r})
}

// awaitPlan has a pod wait for its plan to be in force as far as it goes.
func (c *Controller) awaitPlan(w waiters, key, node string, plan egressip.Plan) {
	if plan.Self {
		c.await(w, key, node, reached{own: true, flushed: plan.Lingers, policies: plan.Want.Clone().Policies})
	}
	for _, n := range plan.Await {
		nats := maps.Clone(plan.Want.NATs)
		maps.DeleteFunc(nats, func(site egressip.Site, _ netip.Addr) bool { return site.Node != n })
		c.await(w, key, n, reached{nats: nats})
	}
}

// wait waits for chassis without holding up the worker, and brings the keys of the
// pods back, all of one chassis together.
func (c *Controller) wait(w waiters) {
	ctx := c.podStates.context()
	var cleaned []awaited
	for at := range w {
		if at.old && !c.dead(at.node) { // that one would hold up the others
			cleaned = append(cleaned, at)
			continue
		}
		go func() { c.pods.Enqueue(c.arrived(at, w[at], c.reach(ctx, at))...) }()
	}
	if len(cleaned) == 0 {
		return
	}
	// What follows there is the removal of translations, which has time: it waits for
	// all these chassis, to be one transaction.
	go func() {
		errs := make([]error, len(cleaned))
		var all sync.WaitGroup
		for i, at := range cleaned {
			all.Go(func() { errs[i] = c.reach(ctx, at) })
		}
		all.Wait()
		var keys []string
		for i, at := range cleaned {
			keys = append(keys, c.arrived(at, w[at], errs[i])...)
		}
		c.pods.Enqueue(keys...)
	}()
}

// reach is inForce with its panics.
func (c *Controller) reach(ctx context.Context, at awaited) error {
	return panics.Catch("egressip-pods", func() error { return c.inForce(ctx, at) })
}

// arrived notes that pods need not wait for a chassis any more, and returns their
// keys.
func (c *Controller) arrived(at awaited, waiters []waiter, err error) []string {
	if err != nil {
		klog.V(4).InfoS("Policies are not in force yet", "pods", len(waiters), "node", at.node, "err", err)
	}
	c.podStates.arrived(waiters, err == nil)
	keys := make([]string, 0, len(waiters))
	for _, p := range waiters {
		keys = append(keys, p.key)
	}
	return keys
}

// inForce waits until a chassis has in force what was written before. Whether what
// is a pod's own has reached a node that is gone does not matter to anybody.
func (c *Controller) inForce(ctx context.Context, at awaited) error {
	chassis, gone := c.chassis(at.node)
	if gone && at.self {
		return nil
	}
	limit := podStartTimeout
	if c.deps.Acknowledge > 0 && !at.self {
		limit = min(limit, c.deps.Acknowledge)
		c.applies(at.node, false)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.deps.Barrier.Wait(limited, chassis)
	if c.deps.Acknowledge > 0 && !at.self && ctx.Err() == nil {
		c.applies(at.node, err == nil || c.dead(at.node) || !c.answered(ctx, at.node))
	}
	if err != nil || !at.old {
		return err
	}
	select {
	case <-time.After(revalidateDelay):
	case <-ctx.Done():
	}
	return nil
}

// chassis returns the chassis of a node, and whether the node is gone for good. One that
// only passes for dead may have no time for probes, and forwards what its pods send.
func (c *Controller) chassis(node string) (name string, gone bool) {
	n, err := c.deps.Nodes.Lister().Get(node)
	if err != nil {
		return "", true
	}
	name = n.Annotations[kube.AnnotationChassisID]
	return name, name == ""
}
