package egressip

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Assign returns the status items of a decision. An address that another node answers for
// stays there until the next node has reported that it is prepared, and translates
// for the pods: then From is cleared. translated reports the latter for a placement on a
// primary network; on secondary networks being prepared includes it.
func (d Decision) Assign(status v1.EgressIPStatus, translated func(Placement) bool) []v1.EgressIPStatusItem {
	items, from := d.Items(), d.from(status)
	for i, item := range items {
		at := slices.IndexFunc(d.Placements, func(p Placement) bool { return p.Node != "" && p.Addr.String() == item.EgressIP })
		p := d.Placements[at]
		if !Awaits(status, p.Node, p.Addr) || p.Primary && !translated(p) || d.nodeOccupied(p, from) {
			items[i].From = from[p.Addr]
		}
	}
	return items
}

// from returns, by address, the nodes that addresses are to leave but that have not been
// allowed to release them yet.
func (d Decision) from(status v1.EgressIPStatus) map[netip.Addr]string {
	from := map[netip.Addr]string{}
	for _, p := range d.Placements {
		was := itemOf(status, p.Addr)
		released := was.Node == p.Node && was.From == ""
		if node := cmp.Or(was.From, was.Node); !released && p.Node != "" && node != "" && node != p.Node && Answers(status, node, p.Addr) {
			from[p.Addr] = node
		}
	}
	return from
}

// retained returns the node that continues to answer for an address until the next node
// is prepared, or "" if there is none.
func retained(status v1.EgressIPStatus, p Placement) string {
	if from := itemOf(status, p.Addr).From; from != p.Node && Answers(status, from, p.Addr) {
		return from
	}
	return ""
}

// nodeOccupied reports whether the node that is to take an address still has another address of
// the family, which stays there until it can move: a node gives a pod only one address. Addresses
// that change places are exempt, since none of them could move first.
func (d Decision) nodeOccupied(first Placement, from map[netip.Addr]string) bool {
	p := first
	for range d.Placements {
		i := slices.IndexFunc(d.Placements, func(q Placement) bool {
			return q.Addr != p.Addr && topology.FamilyOf(q.Addr) == topology.FamilyOf(p.Addr) && from[q.Addr] == p.Node
		})
		if i < 0 {
			return p != first
		}
		if p = d.Placements[i]; p.Addr == first.Addr {
			return false
		}
	}
	return false
}

// given returns, by node, the addresses on secondary networks that nodes are prepared for:
// those that they are to hold, and those that they retain.
func (d Decision) given(status v1.EgressIPStatus, nodes Nodes) map[string][]netip.Addr {
	given := map[string][]netip.Addr{}
	for _, p := range d.Placements {
		if p.Node == "" {
			continue
		}
		if !p.Primary {
			given[p.Node] = append(given[p.Node], p.Addr)
		}
		from := itemOf(status, p.Addr).From
		n, ok := nodes(from)
		if !ok {
			continue
		}
		if _, primary, _ := networkOf(n, p.Addr); !primary {
			given[from] = append(given[from], p.Addr)
		}
	}
	return given
}

// DropAwaiting returns the status entries of nodes, without the addresses that they
// prepared for but are no longer to hold. A node that is not running cannot remove the entry itself,
// and would be considered prepared when it is given the address again.
func DropAwaiting(words []v1.ProgrammedStatus, items []v1.EgressIPStatusItem) []v1.ProgrammedStatus {
	words = slices.Clone(words)
	for i, w := range words {
		words[i].Awaiting = slices.DeleteFunc(slices.Clone(w.Awaiting), func(text string) bool {
			return !slices.ContainsFunc(items, func(item v1.EgressIPStatusItem) bool { return item.EgressIP == text && item.Node == w.Node })
		})
	}
	return words
}

// Translated reports whether the nodes that are to take addresses from others translate to
// them for the pod, as far as this is possible before they have them. A pod that cannot send yet,
// or that is not led to an address, loses nothing when the address moves.
func (s Steering) Translated() bool {
	if s.Pod.Pending || s.Pod.Late {
		return true
	}
	for _, pod := range s.Pod.Addrs {
		paths := s.pathsOf(pod)
		for _, p := range paths {
			if p.Primary && !p.Answered && s.routesTo(s.Now.Policies[pod], p.Addr) && s.Applied.NATs[Site{pod, p.Node}] != p.Addr && !s.exchanged(paths, p, pod) {
				return false
			}
		}
	}
	return true
}

// Used returns the state of the database, without the translations of nodes that are to take
// addresses and that no policy leads to yet: for rows written by others, it is unknown whether
// they are in force.
func (s Steering) Used() State {
	used := s.Now.Clone()
	for _, p := range s.Paths {
		for _, pod := range s.Pod.Addrs {
			if !p.Answered && !slices.Contains(s.Now.Policies[pod].Hops, p.NextHop) {
				delete(used.NATs, Site{pod, p.Node})
			}
		}
	}
	return used
}
