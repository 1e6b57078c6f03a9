package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// overtaken is the delay before an EgressIP is reconciled again if the API server had
// a newer version than this node.
const overtaken = 100 * time.Millisecond

// getTimeout bounds a request to the API server, so that an API server that is silently lost
// does not delay the other EgressIPs.
const getTimeout = 2 * time.Second

// allowed returns the assignment of this node, and a function that reports for which of its addresses this node may
// answer: those that it holds, and those that it may take. While the node's object lacks its annotations (it was deleted
// and created again), addresses of the primary network cannot be told from those of others, and would be added to a link:
// until then nothing is taken, what is held stays, and OVN answers for nothing else.
func (c *Controller) allowed(
	ctx context.Context, e *v1.EgressIP, before state, node topology.Node,
) (egressip.NodeAssignment, func(netip.Addr) bool, error) {
	assignment := egressip.AssignmentOf(e.Status, node)
	fresh := slices.Concat(assignment.Primary, assignment.Secondary)
	if len(node.Primary) == 0 && len(fresh) > 0 {
		err := fmt.Errorf("hold addresses of EgressIP %s: the primary network of node %s is not known yet", e.Name, node.Name)
		return assignment, nil, errors.Join(err, c.suppression.apply(ctx))
	}
	fresh = slices.DeleteFunc(fresh, func(a netip.Addr) bool { return before.held[a] || !c.ready() || !c.takes(e.Status, a) })
	fresh, err := c.stillAssigned(ctx, e, fresh)
	return assignment, func(a netip.Addr) bool {
		return slices.Contains(fresh, a) || before.held[a] && egressip.Next(true, e.Status, c.deps.Node, a).Answers()
	}, err
}

// awaiting returns the addresses that this node is prepared to take while another
// node still has them: on a secondary network everything except the address is in place; on the
// primary network the bridge has this node's flows.
func (c *Controller) awaiting(e *v1.EgressIP, assignment egressip.NodeAssignment, on linkState) []netip.Addr {
	var awaiting []netip.Addr
	for _, item := range e.Status.Items {
		a, err := netip.ParseAddr(item.EgressIP)
		if err != nil || !egressip.Prepares(e.Status, c.deps.Node, a) || !c.ready() {
			continue
		}
		primary := slices.Contains(assignment.Primary, a)
		if primary && !c.deps.Flows.Synced() {
			c.queue.EnqueueAfter(overtaken, e.Name)
			continue
		}
		if primary || on.links[a] != "" {
			awaiting = append(awaiting, a)
		}
	}
	slices.SortFunc(awaiting, netip.Addr.Compare)
	return awaiting
}

// clear removes old connection tracking entries of the addresses that this node is about to take, and reports
// whether it may still take them. The removal takes seconds if there are many connections,
// and meanwhile the addresses may be assigned to another node: no later step is as slow.
func (c *Controller) clear(ctx context.Context, e *v1.EgressIP, before, after state) (bool, error) {
	fresh := slices.DeleteFunc(slices.SortedFunc(maps.Keys(after.held), netip.Addr.Compare),
		func(a netip.Addr) bool { return before.held[a] })
	if len(fresh) == 0 {
		return true, nil
	}
	if err := c.stale.forget(ctx, fresh); err != nil {
		return false, err
	}
	still, err := c.stillAssigned(ctx, e, fresh)
	return still != nil, err
}

// stillAssigned returns addrs if this node is to take each of them according to the API
// server, and nil otherwise. The cache may be outdated: the node may have been
// stopped for any length of time.
func (c *Controller) stillAssigned(ctx context.Context, e *v1.EgressIP, addrs []netip.Addr) ([]netip.Addr, error) {
	if len(addrs) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	latest, err := c.deps.Client.EgressIPV1().EgressIPs().Get(ctx, e.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read EgressIP %s before taking %v: %w", e.Name, addrs, err)
	}
	gone := err != nil || latest.UID != e.UID
	if slices.ContainsFunc(addrs, func(a netip.Addr) bool {
		return gone || !c.takes(latest.Status, a)
	}) {
		klog.V(2).InfoS("An egress address was reassigned before it was taken", "egressIP", e.Name)
		c.queue.EnqueueAfter(overtaken, e.Name)
		return nil, nil
	}
	return addrs, nil
}

// takes reports whether this node is to answer for an address from now on.
func (c *Controller) takes(status v1.EgressIPStatus, a netip.Addr) bool {
	return egressip.Next(false, status, c.deps.Node, a).Answers()
}

// leavingEntry returns the addresses that this node is about to remove from its status entry of an EgressIP.
func (c *Controller) leavingEntry(e *v1.EgressIP, after state) []netip.Addr {
	status, _ := egressip.NodeStatusOf(e.Status, c.deps.Node)
	var leaving []netip.Addr
	for _, text := range status.EgressIPs {
		if a, err := netip.ParseAddr(text); err == nil && !after.held[a] {
			leaving = append(leaving, a)
		}
	}
	return leaving
}

// holdsStill returns an address that this node is about to remove from its status entry of an
// EgressIP but still holds for another EgressIP, or has not released yet, with the key of the latter. That status
// entry is a former one, which keeps other nodes from taking the address.
func (c *Controller) holdsStill(e *v1.EgressIP, after state) (netip.Addr, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.leavingEntry(e, after) {
		for key, s := range c.states {
			if _, has := s.held[a]; key != e.Name && (has || s.host.Has(a)) {
				return a, key
			}
		}
	}
	return netip.Addr{}, ""
}

// resolveNextHops resolves the node's next hops. Otherwise a gateway router that has
// not sent anything to them yet would do so on the first traffic, and delay it.
func (c *Controller) resolveNextHops(link string, f topology.Family) {
	node, err := c.self()
	if err != nil {
		return // others that need the node report the error
	}
	from, ok := topology.PrefixOf(f, node.Gateway.Addrs)
	if !ok {
		return
	}
	for _, hop := range node.Gateway.NextHops {
		if topology.FamilyOf(hop) != f {
			continue
		}
		if err := c.deps.Announcer.Solicit(link, from.Addr(), hop); err != nil {
			klog.V(2).InfoS("Could not resolve a next hop", "nextHop", hop, "reason", err.Error())
		}
	}
}
