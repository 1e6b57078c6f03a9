package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// overtaken is when an EgressIP is looked at again of which the API server knew more
// than this node.
const overtaken = 100 * time.Millisecond

// may returns which of the addresses that this node is given it may answer for: those that
// it holds, and those that no other node has. What it read of the latter may be old, since it
// may have been stopped for any time: so it asks the API server again.
func (c *Controller) may(ctx context.Context, e *v1.EgressIP, before state, share egressip.Share) (func(netip.Addr) bool, error) {
	free := func(status v1.EgressIPStatus, a netip.Addr) bool { return egressip.Other(status, c.deps.Node, a) == "" }
	fresh := slices.Concat(share.Primary, share.Secondary)
	fresh = slices.DeleteFunc(fresh, func(a netip.Addr) bool { return before.held[a] || !c.ready() || !free(e.Status, a) })
	if len(fresh) > 0 {
		latest, err := c.deps.Client.EgressIPV1().EgressIPs().Get(ctx, e.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read EgressIP %s before taking %v: %w", e.Name, fresh, err)
		}
		gone := err != nil || latest.UID != e.UID
		if slices.ContainsFunc(fresh, func(a netip.Addr) bool {
			return gone || !given(latest.Status, c.deps.Node, a) || !free(latest.Status, a)
		}) {
			klog.V(2).InfoS("An egress address went elsewhere before it was taken", "egressIP", e.Name)
			fresh = nil
			c.queue.EnqueueAfter(overtaken, e.Name)
		}
	}
	return func(a netip.Addr) bool { return before.held[a] || slices.Contains(fresh, a) }, nil
}

// given tells whether the items give a node an address.
func given(status v1.EgressIPStatus, node string, a netip.Addr) bool {
	return slices.ContainsFunc(egressip.Given(status, node), func(item v1.EgressIPStatusItem) bool { return item.EgressIP == a.String() })
}

// holdsStill returns an address that this node's word on an EgressIP has and that it is
// about to take out of it, while it holds it for another EgressIP yet: the word is a
// former one, which keeps others from taking the address.
func (c *Controller) holdsStill(e *v1.EgressIP, after state) (netip.Addr, string) {
	word, _ := egressip.WordOf(e.Status, c.deps.Node)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range word.EgressIPs {
		a, err := netip.ParseAddr(text)
		if err != nil || after.held[a] {
			continue
		}
		for key, s := range c.states {
			if _, has := s.held[a]; key != e.Name && (has || s.host.Has(a)) {
				return a, key
			}
		}
	}
	return netip.Addr{}, ""
}
