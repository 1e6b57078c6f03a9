package master

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// formerHolders returns the nodes that may still hold addresses that an EgressIP is about to get:
// for a deleted EgressIP, or for another one that gave the addresses up. The node that is to have an address is not
// among them, but if the address then goes to another node before that node has taken it, it is.
func (c *Controller) formerHolders(ctx context.Context, key string, d egressip.Decision, known v1.EgressIPStatus) ([]egressip.Former, error) {
	arriving := d.Arriving(known)
	if len(arriving) == 0 {
		return nil, nil
	}
	var former []egressip.Former
	add := func(a netip.Addr, node string) {
		f := egressip.Former{Addr: a, Node: node}
		if to, ok := arriving[a]; ok && node != to && !c.nodeDown(node) && !slices.Contains(former, f) {
			former = append(former, f)
		}
	}
	indexer := c.deps.EgressIPs.Informer().GetIndexer()
	for a := range arriving {
		others, err := indexer.ByIndex(byHeld, a.String())
		if err != nil {
			return nil, fmt.Errorf("find EgressIPs that had address %s: %w", a, err)
		}
		for _, obj := range others {
			e, _ := obj.(*v1.EgressIP)
			if e == nil || e.Name == key {
				continue
			}
			for _, node := range c.decode(e).Holders[a] {
				add(a, node)
			}
		}
		// A new leader has not seen EgressIPs that were deleted before, but the record outlives them. It also has
		// the addresses that nodes have prepared for, so it says nothing once a node has been told to do that.
		if egressip.Assigned(known, a) {
			continue
		}
		nodes, err := c.deps.Nodes.Informer().GetIndexer().ByIndex(byRecorded, a.String())
		if err != nil {
			return nil, fmt.Errorf("find nodes that had address %s: %w", a, err)
		}
		for _, obj := range nodes {
			n, ok := obj.(*corev1.Node)
			if !ok {
				continue
			}
			if add(a, n.Name); n.Name == arriving[a] {
				c.decisions.remember(egressip.Former{Addr: a, Node: n.Name})
			}
		}
	}
	remembered, err := c.unreleased(ctx, c.decisions.formerHolders(arriving))
	if err != nil {
		return nil, err
	}
	for _, f := range remembered {
		add(f.Addr, f.Node)
	}
	slices.SortFunc(former, func(a, b egressip.Former) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Node, b.Node))
	})
	return former, nil
}
