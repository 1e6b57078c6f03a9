package master

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
)

// steered knows which pods other features steer, and the rows of which nodes depend on
// whom of them, so that a pod has the rows of no other node planned again.
type steered struct {
	sets []*noreroute.PodSet // those that are not nil

	mu     sync.Mutex
	nodes  map[netip.Addr]string
	byNode map[string][]netip.Addr
}

func newSteered(sets []*noreroute.PodSet) *steered {
	return &steered{
		sets:   slices.DeleteFunc(slices.Clone(sets), func(s *noreroute.PodSet) bool { return s == nil }),
		nodes:  map[netip.Addr]string{},
		byNode: map[string][]netip.Addr{},
	}
}

// of returns which of the addresses that the rows of a node depend on are steered. A change
// from then on is one of the node: it is noted first and looked up then, so that none is missed.
func (s *steered) of(node string, addrs []netip.Addr) map[netip.Addr]bool {
	s.note(node, addrs)
	found := map[netip.Addr]bool{}
	for _, a := range addrs {
		if slices.ContainsFunc(s.sets, func(set *noreroute.PodSet) bool { return set.Has(a) }) {
			found[a] = true
		}
	}
	return found
}

func (s *steered) note(node string, addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.byNode[node] {
		if s.nodes[a] == node { // or it has gone to another one
			delete(s.nodes, a)
		}
	}
	delete(s.byNode, node)
	if len(addrs) > 0 {
		s.byNode[node] = addrs
	}
	for _, a := range addrs {
		s.nodes[a] = node
	}
}

// affected returns the nodes whose rows depend on one of some addresses.
func (s *steered) affected(addrs []netip.Addr) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nodes []string
	for _, a := range addrs {
		if node, ok := s.nodes[a]; ok && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}
