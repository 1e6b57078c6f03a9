package master

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
)

// steered tracks which pods other features steer, and which nodes' rows depend on
// them, so that a change of a pod only triggers planning for the affected node.
type steered struct {
	sets []*noreroute.PodSet // without nil sets

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

// of returns which of the addresses that a node's rows depend on are steered. The dependency is
// recorded before the lookup, so that no later change is missed.
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
		if s.nodes[a] == node { // otherwise it has moved to another node
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

// affected returns the nodes whose rows depend on any of the addresses.
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
