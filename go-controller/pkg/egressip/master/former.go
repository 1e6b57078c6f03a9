package master

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// noteFormer remembers who holds the addresses of an EgressIP that is gone: nobody else
// will know when another EgressIP gets them. Placement looks at those only that came
// here, since the lister may have them before it is known which were before.
func (c *Controller) noteFormer(old, new *v1.EgressIP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if new != nil {
		c.met[new.Name] = new.UID
	}
	if old == nil || new != nil && old.UID == new.UID {
		return
	}
	if new == nil {
		delete(c.met, old.Name)
	}
	for a, nodes := range egressip.Decode(old).Holders {
		if c.formers[a] == nil {
			c.formers[a] = map[string]bool{}
		}
		for _, node := range nodes {
			c.formers[a][node] = true
		}
	}
}

// former returns the nodes that may hold addresses which an EgressIP is about to get:
// by one that is gone, or by another one that has given them up.
func (c *Controller) former(key string, d egressip.Decision, known v1.EgressIPStatus) ([]egressip.Former, error) {
	arriving := d.Arriving(known)
	if len(arriving) == 0 {
		return nil, nil
	}
	var former []egressip.Former
	add := func(a netip.Addr, node string) {
		f := egressip.Former{Addr: a, Node: node}
		if to, ok := arriving[a]; ok && node != to && !c.muted(node) && !slices.Contains(former, f) {
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
		for node := range c.formers[a] {
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

// carried forgets about former holders that a status has now.
func (c *Controller) carried(former []egressip.Former) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range former {
		if delete(c.formers[f.Addr], f.Node); len(c.formers[f.Addr]) == 0 {
			delete(c.formers, f.Addr)
		}
	}
}
