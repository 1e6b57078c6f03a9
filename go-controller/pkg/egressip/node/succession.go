package node

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// handedOn is how long a node that takes an address hands on, to who had it before,
// what belongs to connections that it does not know. On the primary network that node
// has its translations until a second after the pods' policies have moved, on others
// for twice this time.
var handedOn = 3 * time.Second

// predecessors are the nodes that have the addresses this node is given, and had
// those that it has taken a moment ago.
type predecessors struct {
	read func(ctx context.Context, node string) (topology.Node, error)

	mu sync.Mutex
	by map[netip.Addr]predecessor
}

type predecessor struct {
	key   string // the EgressIP
	node  topology.Node
	until time.Time // when it is of no use any more; zero: it has the address yet
}

func newPredecessors(deps Deps) *predecessors {
	read := func(ctx context.Context, name string) (topology.Node, error) {
		n, err := deps.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return topology.Node{Name: name}, err
		}
		return kube.Node(n)
	}
	return &predecessors{read: read, by: map[netip.Addr]predecessor{}}
}

// expect notes which nodes have addresses that this one is given by an EgressIP, and
// forgets about those that it is not given.
func (p *predecessors) expect(ctx context.Context, key string, e *v1.EgressIP, share egressip.Share, self string) {
	given := slices.Concat(share.Primary, share.Secondary)
	p.mu.Lock()
	maps.DeleteFunc(p.by, func(a netip.Addr, h predecessor) bool { return h.key == key && !slices.Contains(given, a) })
	known := maps.Clone(p.by)
	p.mu.Unlock()
	for _, a := range given {
		name := egressip.Other(e.Status, self, a)
		if have := known[a]; name == "" || have.node.Name == name && have.until.IsZero() {
			continue
		}
		node, err := p.read(ctx, name)
		if err != nil { // what comes for its connections will be lost
			klog.V(2).InfoS("Who has an egress address is not known", "address", a, "node", name, "err", err)
		}
		p.mu.Lock()
		p.by[a] = predecessor{key: key, node: node}
		p.mu.Unlock()
	}
}

// of returns who has an address, or had it a moment ago if this node holds it now,
// and for how long that is still of use; 0 for as long as it has it.
func (p *predecessors) of(a netip.Addr, held bool) (node topology.Node, rest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.by[a]
	if !ok || !held {
		return h.node, 0
	}
	now := time.Now()
	if h.until.IsZero() {
		h.until = now.Add(handedOn)
		p.by[a] = h
	}
	if !now.Before(h.until) {
		delete(p.by, a)
		return topology.Node{}, 0
	}
	return h.node, h.until.Sub(now)
}

// departed is an address on a secondary network that this node let go of for another.
type departed struct {
	network netip.Prefix
	until   time.Time
}

// departing returns the addresses of an EgressIP on secondary networks that this node
// let go of a moment ago because another one is given them: it is still prepared for
// them, so that connections go on until their pods are led away.
func (c *Controller) departing(key string, e *v1.EgressIP, before state) egressip.Share {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := egressip.Share{Networks: map[netip.Addr]netip.Prefix{}}
	elsewhere := map[netip.Addr]netip.Prefix{}
	if e != nil && !c.leaving {
		for _, item := range e.Status.Items {
			a, err := netip.ParseAddr(item.EgressIP)
			network, errNetwork := netip.ParsePrefix(item.Network)
			if err == nil && errNetwork == nil && item.Node != c.deps.Node {
				elsewhere[a] = network
			}
		}
	}
	now, left := time.Now(), c.departed[key]
	for a, network := range elsewhere {
		if before.held[a] && before.host.Has(a) {
			if left == nil {
				left = map[netip.Addr]departed{}
				c.departed[key] = left
			}
			left[a] = departed{network, now.Add(2 * handedOn)}
		}
	}
	for a, d := range left {
		if _, ok := elsewhere[a]; !ok || !now.Before(d.until) {
			delete(left, a)
			continue
		}
		share.Secondary = append(share.Secondary, a)
		share.Networks[a] = d.network
		c.queue.EnqueueAfter(d.until.Sub(now), key)
	}
	if len(left) == 0 {
		delete(c.departed, key)
	}
	slices.SortFunc(share.Secondary, netip.Addr.Compare)
	return share
}
