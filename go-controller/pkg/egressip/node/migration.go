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

// migrationTime is how long a node that has taken an address forwards packets of unknown
// connections to the previous holder. On the primary network the previous holder
// keeps its translations until a second after the pods' policies have moved, on secondary
// networks for twice this time.
var migrationTime = 3 * time.Second

// holderRetry is the delay before the Node of a holder that is not known is read again.
const holderRetry = time.Second

// previousHolders are the nodes that hold the addresses assigned to this node, or held
// those that it has just taken.
type previousHolders struct {
	read  func(ctx context.Context, node string) (topology.Node, error)
	again func(key string) // calls expect again for an EgressIP after a while

	mu sync.Mutex
	by map[netip.Addr]previousHolder
}

type previousHolder struct {
	key   string // the EgressIP
	node  topology.Node
	until time.Time // when it expires; zero: the node still has the address
}

func newPreviousHolders(deps Deps, again func(key string)) *previousHolders {
	read := func(ctx context.Context, name string) (topology.Node, error) {
		ctx, cancel := context.WithTimeout(ctx, getTimeout)
		defer cancel()
		n, err := deps.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return topology.Node{Name: name}, err
		}
		return kube.Node(n)
	}
	return &previousHolders{read: read, again: again, by: map[netip.Addr]previousHolder{}}
}

// expect records the nodes that hold addresses which an EgressIP assigns to this node, and
// forgets those of addresses that it does not assign. Nodes that cannot be read, or lack the addresses to which packets are
// handed on, are read again later: the preparation may take minutes.
func (p *previousHolders) expect(ctx context.Context, key string, e *v1.EgressIP, assignment egressip.NodeAssignment, self string) {
	given := slices.Concat(assignment.Primary, assignment.Secondary)
	p.mu.Lock()
	maps.DeleteFunc(p.by, func(a netip.Addr, h previousHolder) bool { return h.key == key && !slices.Contains(given, a) })
	known := maps.Clone(p.by)
	p.mu.Unlock()
	for _, a := range given {
		name := egressip.Other(e.Status, self, a)
		if have := known[a]; name == "" || have.node.Name == name && have.until.IsZero() {
			continue
		}
		node, err := p.read(ctx, name)
		primary := slices.Contains(assignment.Primary, a)
		complete := primary && node.Gateway.MAC != "" || !primary && len(node.Host) > 0
		if err != nil || !complete { // until then, packets of its connections would be lost
			klog.V(2).InfoS("Cannot completely determine the current holder of an egress address", "address", a, "node", name, "err", err)
		}
		p.mu.Lock()
		if complete {
			p.by[a] = previousHolder{key: key, node: node}
		} else {
			delete(p.by, a)
			p.again(key)
		}
		p.mu.Unlock()
	}
}

// of returns the holder of an address, or the previous one if this node holds the address now,
// and for how long that is still relevant; 0 while the other node still has the address.
func (p *previousHolders) of(a netip.Addr, held bool) (node topology.Node, rest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.by[a]
	if !ok || !held {
		return h.node, 0
	}
	now := time.Now()
	if h.until.IsZero() {
		h.until = now.Add(migrationTime)
		p.by[a] = h
	}
	if !now.Before(h.until) {
		delete(p.by, a)
		return topology.Node{}, 0
	}
	return h.node, h.until.Sub(now)
}

// released is an address on a secondary network that this node released.
type released struct {
	network netip.Prefix // invalid: packets that its pods still send here must leave by no link
	until   time.Time
}

// planReleased returns the addresses of an EgressIP on secondary networks that were assigned to
// this node until recently, while pods may still be led here. If another node has the address,
// this node keeps its rules so that connections continue. It drops the traffic instead
// if this process is about to end, or if no node is assigned the
// address and the pods must use another address of the EgressIP, or none.
func (c *Controller) planReleased(key string, e *v1.EgressIP, before state) egressip.NodeAssignment {
	c.mu.Lock()
	defer c.mu.Unlock()
	networks := map[netip.Addr]netip.Prefix{} // of addresses for which traffic may still arrive here
	given := map[netip.Addr]bool{}
	var items []v1.EgressIPStatusItem
	if e != nil {
		items = e.Status.Items
	}
	for _, item := range items {
		a, err := netip.ParseAddr(item.EgressIP)
		network, errNetwork := netip.ParsePrefix(item.Network)
		if given[a] = true; err != nil || errNetwork != nil || item.Node == c.deps.Node || item.From == c.deps.Node {
			continue
		}
		networks[a] = network
	}
	left := c.released[key]
	if left == nil {
		left = map[netip.Addr]released{}
	}
	for _, a := range slices.Concat(before.onLinks(), slices.Collect(maps.Keys(left))) {
		others := slices.ContainsFunc(slices.Collect(maps.Keys(given)), func(o netip.Addr) bool {
			return topology.FamilyOf(o) == topology.FamilyOf(a)
		})
		if e != nil && !given[a] && (others || e.Spec.OnUnavailable == v1.UnavailableDrop) {
			networks[a] = netip.Prefix{}
		}
	}
	now := time.Now()
	for _, a := range before.onLinks() {
		if network, expected := networks[a]; expected {
			left[a] = released{network, now.Add(2 * migrationTime)}
		}
	}
	assignment := egressip.NodeAssignment{Networks: map[netip.Addr]netip.Prefix{}}
	for a, d := range left {
		if _, expected := networks[a]; !expected || !now.Before(d.until) {
			delete(left, a)
			continue
		}
		if c.ending {
			d.network = netip.Prefix{}
			left[a] = d
		}
		assignment.Secondary = append(assignment.Secondary, a)
		assignment.Networks[a] = d.network
		c.queue.EnqueueAfter(d.until.Sub(now), key)
	}
	c.released[key] = left
	if len(left) == 0 {
		delete(c.released, key)
	}
	slices.SortFunc(assignment.Secondary, netip.Addr.Compare)
	return assignment
}
