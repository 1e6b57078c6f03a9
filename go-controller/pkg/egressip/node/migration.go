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

// migrationTime is how long a node that takes an address hands on, to who had it before,
// what belongs to connections that it does not know. On the primary network that node
// has its translations until a second after the pods' policies have moved, on others
// for twice this time.
var migrationTime = 3 * time.Second

// previousHolders are the nodes that have the addresses this node is given, and had
// those that it has taken a moment ago.
type previousHolders struct {
	read func(ctx context.Context, node string) (topology.Node, error)

	mu sync.Mutex
	by map[netip.Addr]previousHolder
}

type previousHolder struct {
	key   string // the EgressIP
	node  topology.Node
	until time.Time // when it is of no use any more; zero: it has the address yet
}

func newPreviousHolders(deps Deps) *previousHolders {
	read := func(ctx context.Context, name string) (topology.Node, error) {
		n, err := deps.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return topology.Node{Name: name}, err
		}
		return kube.Node(n)
	}
	return &previousHolders{read: read, by: map[netip.Addr]previousHolder{}}
}

// expect notes which nodes have addresses that this one is given by an EgressIP, and
// forgets about those that it is not given.
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
		if err != nil { // what comes for its connections will be lost
			klog.V(2).InfoS("Cannot find out who has an egress address", "address", a, "node", name, "err", err)
		}
		p.mu.Lock()
		p.by[a] = previousHolder{key: key, node: node}
		p.mu.Unlock()
	}
}

// of returns who has an address, or had it a moment ago if this node holds it now,
// and for how long that is still of use; 0 for as long as it has it.
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

// released is an address on a secondary network that this node let go of for another.
type released struct {
	network netip.Prefix
	until   time.Time
}

// planReleased returns the addresses of an EgressIP on secondary networks that this node
// let go of a moment ago because another one is given them: it is still prepared for
// them, so that connections go on until their pods are led away.
func (c *Controller) planReleased(key string, e *v1.EgressIP, before state) egressip.NodeAssignment {
	c.mu.Lock()
	defer c.mu.Unlock()
	assignment := egressip.NodeAssignment{Networks: map[netip.Addr]netip.Prefix{}}
	elsewhere := map[netip.Addr]netip.Prefix{}
	if e != nil && !c.leaving {
		for _, item := range e.Status.Items {
			a, err := netip.ParseAddr(item.EgressIP)
			network, errNetwork := netip.ParsePrefix(item.Network)
			if err == nil && errNetwork == nil && item.Node != c.deps.Node && item.From != c.deps.Node {
				elsewhere[a] = network
			}
		}
	}
	now, left := time.Now(), c.released[key]
	for a, network := range elsewhere {
		if before.held[a] && before.host.Has(a) {
			if left == nil {
				left = map[netip.Addr]released{}
				c.released[key] = left
			}
			left[a] = released{network, now.Add(2 * migrationTime)}
		}
	}
	for a, d := range left {
		if _, ok := elsewhere[a]; !ok || !now.Before(d.until) {
			delete(left, a)
			continue
		}
		assignment.Secondary = append(assignment.Secondary, a)
		assignment.Networks[a] = d.network
		c.queue.EnqueueAfter(d.until.Sub(now), key)
	}
	if len(left) == 0 {
		delete(c.released, key)
	}
	slices.SortFunc(assignment.Secondary, netip.Addr.Compare)
	return assignment
}
