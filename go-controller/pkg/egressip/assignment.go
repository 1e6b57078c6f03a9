package egressip

import (
	"net/netip"
	"slices"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// SuppressedAddrs returns, sorted, the addresses that a node's gateway router must not
// answer for: all addresses on its primary network that were accepted as egress
// addresses and that the node does not hold. A refused address may be in use elsewhere,
// for example by a Service, and no router has it in its translations. Addresses of
// the node itself are never included: its gateway router uses them.
func SuppressedAddrs(all []*v1.EgressIP, node topology.Node, held func(netip.Addr) bool) []netip.Addr {
	var gated []netip.Addr
	add := func(text string) {
		a, err := netip.ParseAddr(text)
		if err == nil && Suppressible(node, a) && !held(a) {
			gated = append(gated, a)
		}
	}
	for _, e := range all {
		// An address removed from the spec stays among these until its translations are removed.
		for _, item := range e.Status.Items {
			add(item.EgressIP)
		}
	}
	slices.SortFunc(gated, netip.Addr.Compare)
	return slices.Compact(gated)
}

// Suppressible reports whether the gateway router of a node must not answer for an address
// of an EgressIP that the node does not hold.
func Suppressible(node topology.Node, a netip.Addr) bool {
	return !a.Is4In6() && a.Zone() == "" && !IsOwn(node, a) && OnPrimary(node, a)
}

// IsOwn reports whether an address is one of the node's own.
func IsOwn(node topology.Node, a netip.Addr) bool {
	for _, prefixes := range [][]netip.Prefix{node.Primary, node.Gateway.Addrs, node.Host} {
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return true
		}
	}
	return false
}

// OnPrimary reports whether an address may be on a node's primary network. While
// that network is unknown, every address may be on it.
func OnPrimary(node topology.Node, a netip.Addr) bool {
	return len(node.Primary) == 0 ||
		slices.ContainsFunc(node.Primary, func(p netip.Prefix) bool { return p.Contains(a) })
}

// NodeAssignment is the part of an EgressIP's items that concerns one node.
type NodeAssignment struct {
	Primary   []netip.Addr // on the node's primary network
	Secondary []netip.Addr // on other networks of its host
	// Networks are the networks of the secondary addresses, as the items name them.
	Networks map[netip.Addr]netip.Prefix
}

// AssignmentOf returns the assignment of a node: the addresses that it is to hold, and those
// that it retains. The item's network decides where an address belongs. Only for an address
// that another node is to hold does the node decide itself, since the item then has the
// network of that node. Items with an invalid egress address are ignored.
func AssignmentOf(status v1.EgressIPStatus, node topology.Node) NodeAssignment {
	s := NodeAssignment{Networks: map[netip.Addr]netip.Prefix{}}
	for _, item := range ItemsOf(status, node.Name) {
		given := parse(item.EgressIP)
		if given.Refused != (Refusal{}) {
			continue // not a placement by this controller
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

// NodeStatusOf returns the status entry of a node and its index in the status, or -1 if the
// node has none.
func NodeStatusOf(status v1.EgressIPStatus, node string) (v1.ProgrammedStatus, int) {
	for i, nodeStatus := range status.Programmed {
		if nodeStatus.Node == node {
			return nodeStatus, i
		}
	}
	return v1.ProgrammedStatus{}, -1
}

// SameNodeStatus reports whether two status entries are equal.
func SameNodeStatus(a, b v1.ProgrammedStatus) bool {
	return a.Node == b.Node && slices.Equal(a.EgressIPs, b.EgressIPs) &&
		slices.Equal(a.Awaiting, b.Awaiting) && a.Digest == b.Digest && a.Problem == b.Problem
}
