package service

import (
	"maps"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// NodeFacts is the part of a node that rows depend on. It is comparable.
type NodeFacts struct {
	// Switch is true if the node has a switch; without it nothing else matters.
	Switch bool
	// Gateway is true if the node has a gateway router.
	Gateway bool
	// Shared is true if external traffic enters through the gateway router.
	Shared bool
	// IPv4 and IPv6 are the node's own addresses, if it has them.
	IPv4, IPv6 netip.Addr
	// Subnet4 and Subnet6 are the subnets of its pods.
	Subnet4, Subnet6 netip.Prefix
	// Join4 and Join6 are the addresses of its gateway router on the join switch.
	Join4, Join6 netip.Addr
}

// FactsOf returns the facts of a node. A node without pod subnets has no switch, so nothing
// can be planned for it: its facts are zero.
func FactsOf(n topology.Node) NodeFacts {
	if len(n.Subnets) == 0 {
		return NodeFacts{}
	}
	f := NodeFacts{Switch: true, Gateway: n.HasGateway(), Shared: n.Gateway.Mode == topology.GatewayShared}
	f.Subnet4, _ = topology.PrefixOf(topology.IPv4, n.Subnets)
	f.Subnet6, _ = topology.PrefixOf(topology.IPv6, n.Subnets)
	addr := func(f topology.Family, of []netip.Prefix) netip.Addr {
		p, _ := topology.PrefixOf(f, of)
		return p.Addr()
	}
	f.IPv4, f.IPv6 = addr(topology.IPv4, n.Gateway.Addrs), addr(topology.IPv6, n.Gateway.Addrs)
	f.Join4, f.Join6 = addr(topology.IPv4, n.Join), addr(topology.IPv6, n.Join)
	return f
}

func (n NodeFacts) addr(f topology.Family) netip.Addr {
	if f == topology.IPv4 {
		return n.IPv4
	}
	return n.IPv6
}

func (n NodeFacts) join(f topology.Family) netip.Addr {
	if f == topology.IPv4 {
		return n.Join4
	}
	return n.Join6
}

func (n NodeFacts) subnet(f topology.Family) netip.Prefix {
	if f == topology.IPv4 {
		return n.Subnet4
	}
	return n.Subnet6
}

// Nodes are the nodes that rows can be planned for, by name. It is immutable, so it can be
// read without a lock.
type Nodes map[string]NodeFacts

// Shared reports whether external traffic enters through the gateway router of any node.
func (n Nodes) Shared() bool {
	for _, facts := range n {
		if facts.Shared {
			return true
		}
	}
	return false
}

// of returns the node with a gateway router whose pod subnet contains an address. It tries
// guess first.
func (n Nodes) of(a netip.Addr, guess string) (name string, ok bool) {
	f := topology.FamilyOf(a)
	if facts := n[guess]; facts.Gateway && facts.subnet(f).Contains(a) {
		return guess, true
	}
	for name, facts := range n {
		if facts.Gateway && facts.subnet(f).Contains(a) {
			return name, true
		}
	}
	return "", false
}

// With returns the nodes after one has changed; facts is nil if it is gone. changed is
// false if nothing differs.
func (n Nodes) With(name string, facts *NodeFacts) (next Nodes, changed bool) {
	if facts == nil || *facts == (NodeFacts{}) {
		if _, ok := n[name]; !ok {
			return n, false
		}
		next = maps.Clone(n)
		delete(next, name)
		return next, true
	}
	if have, ok := n[name]; ok && have == *facts {
		return n, false
	}
	if next = maps.Clone(n); next == nil {
		next = Nodes{}
	}
	next[name] = *facts
	return next, true
}
