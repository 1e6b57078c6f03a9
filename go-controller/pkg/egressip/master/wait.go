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

// waiters are the waiting pods, by chassis.
type waiters map[awaited][]waiter

// maxPatience limits the waits for the chassis of a dead node. Each wait is twice as long as the one before, because it makes every
// chassis report; when the chassis is back, the wait ends at once.
const maxPatience = time.Minute

// awaited identifies a chassis to wait for.
type awaited struct {
	node string
	// self: it is the pods' own chassis.
	self bool
	// old: the previous flows must be flushed from its datapath, too.
	old bool
	// all: not only policies and translations are waited for.
	all bool
	// since is what to wait for; nil: what has been written so far.
	since *point
}

// point is a state of the northbound database.
type point struct {
	// applied waits until a chassis has applied it.
	applied func(ctx context.Context, chassis string) error
}

// waiter is a pod that waits for a chassis.
type waiter struct {
	key, what string
	st        *podState
	reached   reached
}

// await makes a pod wait for the chassis of a node, unless it already waits for it.
// Afterwards the pod's key is enqueued again, and also sees changes made meanwhile. A wait that was in vain is
// continued if the pod needs nothing else: a chassis, or ovn-northd, that takes longer than one wait would
// otherwise never be seen to apply anything.
func (c *Controller) await(w waiters, key, node string, r reached) {
	what := fmt.Sprint(node, r.own, r.portGone, r.uid)
	st, since, ok := c.podStates.wait(key, what, r)
	if !ok {
		return
	}
	at := awaited{node: node, self: r.own || r.portGone, old: r.flushed, all: r.portGone, since: since}
	w[at] = append(w[at], waiter{key, what, st, r})
}

// awaitPlan makes a pod wait until its plan is in force, as far as the plan goes.
func (c *Controller) awaitPlan(w waiters, key string, st *podState, node string, plan egressip.Plan) {
	if plan.Self {
		c.await(w, key, node, reached{own: true, flushed: plan.Lingers, policies: plan.Want.Clone().Policies, number: st.written})
	}
	for _, n := range plan.Await {
		nats := maps.Clone(plan.Want.NATs)
		maps.DeleteFunc(nats, func(site egressip.Site, _ netip.Addr) bool { return site.Node != n })
		c.await(w, key, n, reached{nats: nats, number: st.translated})
	}
}

// wait waits for chassis without blocking the worker, and enqueues the keys of the
// pods again, those of one chassis together.
func (c *Controller) wait(w waiters) {
	ctx := c.podStates.context()
	var all, counted *point
	for at, waiters := range maps.Clone(w) {
		if at.since != nil {
			continue
		}
		delete(w, at)
		switch {
		case at.all && all == nil: // every request makes all chassis report
			all = &point{c.deps.Barrier.Written()}
		case !at.all && counted == nil:
			counted = &point{c.deps.Barrier.Counted()}
		}
		if at.since = counted; at.all {
			at.since = all
		}
		w[at] = waiters
	}
	var cleaned []awaited
	for at := range w {
		if at.old && !c.dead(at.node) { // a dead node would delay the others
			cleaned = append(cleaned, at)
			continue
		}
		go func() { c.pods.Enqueue(c.arrived(at, w[at], c.reach(ctx, at))...) }()
	}
	if len(cleaned) == 0 {
		return
	}
	// The next step there is to remove translations, which is not urgent: it waits for
	// all these chassis, to be a single transaction.
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

// reach calls awaitApplied and recovers from its panics.
func (c *Controller) reach(ctx context.Context, at awaited) error {
	return panics.Catch("egressip-pods", func() error { return c.awaitApplied(ctx, at) })
}

// arrived records that pods no longer wait for a chassis, and returns their
// keys.
func (c *Controller) arrived(at awaited, waiters []waiter, err error) []string {
	if err != nil {
		klog.V(4).InfoS("Policies are not in force yet", "pods", len(waiters), "node", at.node, "err", err)
	}
	c.podStates.arrived(waiters, at.since, err == nil)
	keys := make([]string, 0, len(waiters))
	for _, p := range waiters {
		keys = append(keys, p.key)
	}
	return keys
}

// awaitApplied waits until a chassis has applied what was written. If the pods' own
// node is gone, it does not wait, since the result does not matter.
func (c *Controller) awaitApplied(ctx context.Context, at awaited) error {
	chassis, gone := c.chassis(at.node)
	if gone && at.self {
		c.podStates.waited(at.node, 0, false)
		return nil
	}
	limit := podStartTimeout
	if at.self {
		limit = c.podStates.patience(at.node)
	}
	if c.deps.Acknowledge > 0 && !at.self {
		limit = min(limit, c.deps.Acknowledge)
		c.waitsFor(at.node)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := at.since.applied(limited, chassis)
	if at.self {
		c.podStates.waited(at.node, limit, err != nil && c.dead(at.node))
	}
	if c.deps.Acknowledge > 0 && !at.self && ctx.Err() == nil {
		blamed := err != nil && !c.dead(at.node) && c.othersAnswer(ctx, at)
		if blamed { // unless it was ovn-northd that took so long
			extra, end := context.WithTimeout(ctx, otherChassisTimeout)
			err = at.since.applied(extra, chassis)
			end()
		}
		c.applies(at.node, !blamed || err == nil)
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

// chassis returns the chassis of a node, and whether the node is permanently gone. A node that
// is merely considered dead may have no time for probes, but still forward its pods' traffic.
func (c *Controller) chassis(node string) (name string, gone bool) {
	n, err := c.deps.Nodes.Lister().Get(node)
	if err != nil {
		return "", true
	}
	name = n.Annotations[kube.AnnotationChassisID]
	return name, name == ""
}

// patience returns how long to wait for the chassis of a node next time.
func (s *podStates) patience(node string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.patiences[node], podStartTimeout)
}

// waited records the end of a wait: in vain, since the node is dead, or not.
func (s *podStates) waited(node string, limit time.Duration, inVain bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.patiences[node] = min(2*limit, maxPatience); !inVain {
		delete(s.patiences, node)
	}
}
