package egressip

import (
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// SuppressedAddrs returns, sorted, the addresses that a node's gateway router must not
// answer for: all addresses on its primary network that were accepted as egress
// addresses and that it does not hold. One that was refused may be in use elsewhere,
// by a Service for example, and no router has it in its translations. An address of
// the node itself is none of them: its gateway router speaks under it.
func SuppressedAddrs(all []*v1.EgressIP, node topology.Node, held func(netip.Addr) bool) []netip.Addr {
	var gated []netip.Addr
	add := func(text string) {
		a, err := netip.ParseAddr(text)
		if err == nil && Suppressible(node, a) && !held(a) {
			gated = append(gated, a)
		}
	}
	for _, e := range all {
		// One that was taken out of the spec is among these until its translations go.
		for _, item := range e.Status.Items {
			add(item.EgressIP)
		}
	}
	slices.SortFunc(gated, netip.Addr.Compare)
	return slices.Compact(gated)
}

// Suppressible tells whether the gateway router of a node must not answer for an address that
// an EgressIP has and the node does not hold.
func Suppressible(node topology.Node, a netip.Addr) bool {
	return !a.Is4In6() && a.Zone() == "" && !IsOwn(node, a) && OnPrimary(node, a)
}

// IsOwn tells whether an address is the node's own.
func IsOwn(node topology.Node, a netip.Addr) bool {
	for _, prefixes := range [][]netip.Prefix{node.Primary, node.Gateway.Addrs, node.Host} {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return true
		}
	}
	return false
}

// OnPrimary tells whether an address may be on a node's primary network. While
// that is not known every address may.
func OnPrimary(node topology.Node, a netip.Addr) bool {
	return len(node.Primary) == 0 ||
		slices.ContainsFunc(node.Primary, func(p netip.Prefix) bool { return p.Contains(a) })
}

// NodeAssignment is what the items of an EgressIP give to one node.
type NodeAssignment struct {
	Primary   []netip.Addr // on the node's primary network
	Secondary []netip.Addr // on other networks of its host
	// Networks are those of the secondary addresses, as the items name them.
	Networks map[netip.Addr]netip.Prefix
}

// AssignmentOf reads the share of a node: what it is to hold, and what it goes on answering
// for. It is the item's network that tells where an address belongs: the node does not
// decide it anew, but for one that another node is to hold, since the item has the network
// of that one. An item that names what can be no egress address gives nothing.
func AssignmentOf(status v1.EgressIPStatus, node topology.Node) NodeAssignment {
	s := NodeAssignment{Networks: map[netip.Addr]netip.Prefix{}}
	for _, item := range ItemsOf(status, node.Name) {
		given := parse(item.EgressIP)
		if given.Refused != (Refusal{}) {
			continue // no placement of ours
		}
		a := given.Addr
		network, err := netip.ParsePrefix(item.Network)
		if item.Node != node.Name {
			if own, _, ok := networkOf(node, a); ok {
				network, err = own, nil
			}
		}
		primary := slices.ContainsFunc(node.Primary, func(p netip.Prefix) bool {
			return p.Masked() == network || err != nil && p.Contains(a)
		})
		if primary {
			s.Primary = append(s.Primary, a)
		} else {
			s.Secondary = append(s.Secondary, a)
			s.Networks[a] = network
		}
	}
	slices.SortFunc(s.Primary, netip.Addr.Compare)
	slices.SortFunc(s.Secondary, netip.Addr.Compare)
	return s
}

// NodeStatusOf returns the status entry of a node in a status, and its place there; -1 where it
// has said nothing.
func NodeStatusOf(status v1.EgressIPStatus, node string) (v1.ProgrammedStatus, int) {
	for i, nodeStatus := range status.Programmed {
		if nodeStatus.Node == node {
			return nodeStatus, i
		}
	}
	return v1.ProgrammedStatus{}, -1
}

// SameNodeStatus compares status entries.
func SameNodeStatus(a, b v1.ProgrammedStatus) bool {
	return a.Node == b.Node && slices.Equal(a.EgressIPs, b.EgressIPs) &&
		slices.Equal(a.Awaiting, b.Awaiting) && a.Digest == b.Digest && a.Problem == b.Problem
}
