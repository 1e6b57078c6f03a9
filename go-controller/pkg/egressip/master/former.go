package master

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// noteFormerHolders remembers who holds the addresses of an EgressIP that is gone: nobody else
// will know when another EgressIP gets them. Placement looks at those only that came
// here, since the lister may have them before it is known which were before.
func (c *Controller) noteFormerHolders(old, new *v1.EgressIP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if new != nil {
		c.observed[new.Name] = new.UID
	}
	if old == nil || new != nil && old.UID == new.UID {
		return
	}
	if new == nil {
		delete(c.observed, old.Name)
	}
	for a, nodes := range egressip.Decode(old).Holders {
		if c.formerHoldersOf[a] == nil {
			c.formerHoldersOf[a] = map[string]bool{}
		}
		for _, node := range nodes {
			c.formerHoldersOf[a][node] = true
		}
	}
}

// formerHolders returns the nodes that may hold addresses which an EgressIP is about to get:
// by one that is gone, or by another one that has given them up.
func (c *Controller) formerHolders(key string, d egressip.Decision, known v1.EgressIPStatus) ([]egressip.Former, error) {
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
	}
	c.mu.Lock()
	var gone []egressip.Former
	for a := range arriving {
		for node := range c.formerHoldersOf[a] {
			gone = append(gone, egressip.Former{Addr: a, Node: node})
		}
	}
	c.mu.Unlock()
	for _, f := range gone {
		add(f.Addr, f.Node)
	}
	slices.SortFunc(former, func(a, b egressip.Former) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Node, b.Node))
	})
	return former, nil
}

// keepFormerHolders forgets about former holders that a status has now.
func (c *Controller) keepFormerHolders(former []egressip.Former) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range former {
		if delete(c.formerHoldersOf[f.Addr], f.Node); len(c.formerHoldersOf[f.Addr]) == 0 {
			delete(c.formerHoldersOf, f.Addr)
		}
	}
}
