package egressip

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Assign returns the status items for a decision. An address that another node answers for stays
// there until the new node has reported that it is prepared and translates for the pods: then
// From is removed. translated tells whether the node of a placement on a primary network
// translates for the pods; on other networks being prepared includes that.
func (d Decision) Assign(status v1.EgressIPStatus, translated func(Placement) bool) []v1.EgressIPStatusItem {
	items, from := d.Items(), d.from(status)
	for i, item := range items {
		at := slices.IndexFunc(d.Placements, func(p Placement) bool { return p.Node != "" && p.Addr.String() == item.EgressIP })
		p := d.Placements[at]
		if !Awaits(status, p.Node, p.Addr) || p.Primary && !translated(p) || d.crowded(p, from) {
			items[i].From = from[p.Addr]
		}
	}
	return items
}

// from returns the nodes that addresses are to leave and that still keep them.
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

// retained returns the node that keeps answering for an address until the new node is prepared,
// or "" if there is none.
func retained(status v1.EgressIPStatus, p Placement) string {
	if from := itemOf(status, p.Addr).From; from != p.Node && Answers(status, from, p.Addr) {
		return from
	}
	return ""
}

// crowded tells whether the node that is to take an address still has another one of the
// family, which has to move away first: a node gives a pod only one address of a family. It
// returns false if addresses swap nodes, since neither could move first.
func (d Decision) crowded(first Placement, from map[netip.Addr]string) bool {
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

// given returns the addresses on secondary networks that nodes are to hold or keep answering for,
// by node.
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

// DropAwaiting returns the status entries of nodes without addresses that they had prepared for
// and are no longer to hold. A node that is down cannot remove these itself, and would count as
// prepared if it were assigned the address again.
func DropAwaiting(words []v1.ProgrammedStatus, items []v1.EgressIPStatusItem) []v1.ProgrammedStatus {
	words = slices.Clone(words)
	for i, w := range words {
		words[i].Awaiting = slices.DeleteFunc(slices.Clone(w.Awaiting), func(text string) bool {
			return !slices.ContainsFunc(items, func(item v1.EgressIPStatusItem) bool { return item.EgressIP == text && item.Node == w.Node })
		})
	}
	return words
}

// Translated tells whether the nodes that are to take addresses from others translate the pod's
// traffic to them, as far as they can before they have them. A pod that cannot send yet, or
// that no policy leads to an address, loses nothing when that moves.
func (s Steering) Translated() bool {
	if s.Pod.Pending || s.Pod.Late {
		return true
	}
	for _, pod := range s.Pod.Addrs {
		paths := s.pathsOf(pod)
		for _, p := range paths {
			if p.Primary && !p.Answered && s.leads(s.Now.Policies[pod], p.Addr) && s.InForce.NATs[Site{pod, p.Node}] != p.Addr && !s.exchanged(paths, p, pod) {
				return false
			}
		}
	}
	return true
}

// Used returns the rows in the database, without translations of nodes that are to take addresses
// and that no policy leads to yet: if a former master wrote these, it is not known whether they are
// in force.
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
