package service

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Bindings holds the valid destinations of UDP packets to virtual addresses, including node
// addresses with a node port. A conntrack entry with another destination is stale: for UDP
// such an entry lives as long as the client keeps sending.
type Bindings map[netip.AddrPort]Binding

// Binding is what one virtual address may be translated to.
type Binding struct {
	To map[netip.AddrPort]bool
	// Outside replaces To for external clients if the kernel translates the address and
	// their traffic has to stay on this node; nil: the same as To. Hosts are the addresses
	// of clients that are not external.
	Outside map[netip.AddrPort]bool
	Hosts   []netip.Addr
	// Direct means that the host's kernel translates the address. An entry of the kernel
	// without translation, created before the rules existed, is then stale.
	Direct bool
	// Routed means that the external bridge sends external traffic to the gateway router.
	// The bridge remembers that choice in conntrack entries without translation. As long as it
	// is right they are needed: by them the bridge recognizes replies, see bridge.ServicePort.
	Routed bool
}

func addressesOf(all ...[]Endpoint) map[netip.AddrPort]bool {
	to := map[netip.AddrPort]bool{}
	for _, endpoints := range all {
		for _, e := range endpoints {
			to[e.To] = true
		}
	}
	return to
}

// bind records the valid destinations of a UDP port. direct means that the kernel sends
// external traffic straight to endpoints; all and here are the port's endpoints in the
// cluster and on this node; routed is what the external bridge sends to the gateway router.
func (p *nodePlanner) bind(port Port, direct bool, all, here []Endpoint, routed map[netip.AddrPort]bool) {
	if port.Protocol != "udp" {
		return
	}
	to, inside := addressesOf(all, here), addressesOf(all, here)
	if p.InternalLocal {
		inside = addressesOf(here)
	}
	p.state.UDP[netip.AddrPortFrom(p.cluster, port.Port)] = Binding{To: inside, Direct: !port.onPods(p.family) && len(inside) > 0}
	external := Binding{To: to, Direct: true}
	if !direct {
		to[netip.AddrPortFrom(p.cluster, port.Port)] = true
	}
	if p.ExternalLocal && len(all) > 0 {
		answer, byVIP := p.answer(port, here)
		external.Outside, external.Hosts = addressesOf(here), p.hosts()
		if byVIP {
			external.Outside = map[netip.AddrPort]bool{answer: true}
			p.state.UDP[answer] = Binding{To: addressesOf(here)}
		}
		for a := range external.Outside {
			to[a] = true // Open vSwitch does not distinguish external clients
		}
	}
	add := func(virtual netip.AddrPort) {
		binding := external
		binding.Routed = routed[virtual]
		p.state.UDP[virtual] = binding
	}
	for _, e := range p.externals(p.family, port) {
		add(netip.AddrPortFrom(e.Addr, port.Port))
	}
	if !p.servesNodePort(port) {
		return // connections to it belong to the host's own processes
	}
	for _, a := range append(slices.Clone(p.node.Gateway.Addrs), p.node.Host...) {
		if topology.FamilyOf(a.Addr()) == p.family {
			add(netip.AddrPortFrom(a.Addr(), port.NodePort))
		}
	}
}

// hosts returns the addresses that the host itself uses as a client.
func (p *nodePlanner) hosts() []netip.Addr {
	var out []netip.Addr
	for _, a := range slices.Concat(p.node.Gateway.Addrs, p.node.Host) {
		out = append(out, a.Addr())
	}
	for _, s := range p.node.Subnets {
		out = append(out, topology.ManagementAddr(s))
	}
	return out
}

// Entry is a UDP conntrack entry: Client sends to To, and replies are expected from From.
// HostOwned entries belong to the host, others to Open vSwitch: those with Bridge to the external
// bridge, and the rest to OVN.
type Entry struct {
	Client            netip.Addr
	To, From          netip.AddrPort
	HostOwned, Bridge bool
}

// Stale reports whether an entry leads to a destination that no longer serves.
func (b Bindings) Stale(e Entry) bool {
	binding, ok := b[e.To]
	switch {
	case !ok:
		return false
	case e.To == e.From && e.Bridge:
		return !binding.Routed
	case e.To == e.From:
		// OVN translates all addresses that have a load balancer; this entry is older.
		return !e.HostOwned || binding.Direct
	case e.HostOwned && !slices.Contains(binding.Hosts, e.Client):
		return !binding.outside()[e.From]
	}
	return !binding.To[e.From]
}

func (b Binding) outside() map[netip.AddrPort]bool {
	if b.Outside != nil {
		return b.Outside
	}
	return b.To
}

// Removed reports whether next no longer allows something that b allowed, so that there may
// be stale entries. Virtual addresses that are gone do not count: packets to them have no
// new destination.
func (b Bindings) Removed(next Bindings) bool {
	for virtual, after := range next {
		before, ok := b[virtual]
		if !ok || after.Direct && !before.Direct || after.Routed != before.Routed {
			return true
		}
		if lost(before.To, after.To) || lost(before.outside(), after.outside()) {
			return true
		}
	}
	return false
}

func lost(before, after map[netip.AddrPort]bool) bool {
	for a := range before {
		if !after[a] {
			return true
		}
	}
	return false
}
