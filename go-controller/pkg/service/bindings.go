package service

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Bindings say where packets to virtual addresses, those of the node with a node
// port among them, may be on their way to. An entry
// of connection tracking that leads elsewhere is stale: of UDP such an entry lives
// as long as the client keeps sending.
type Bindings map[netip.AddrPort]Binding

// Binding is what one virtual address may be translated to.
type Binding struct {
	To map[netip.AddrPort]bool
	// Outside is that for clients outside, where the kernel translates and they are
	// to stay on this node; nil: the same. Hosts are the addresses of clients that
	// are not outside.
	Outside map[netip.AddrPort]bool
	Hosts   []netip.Addr
	// Direct: the kernel of the host translates, so that an entry of its own
	// without translation, made before there were rules, is stale.
	Direct bool
	// Routed: the external bridge hands what comes from outside to the gateway router.
	// It remembers so, of entries without translation.
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

// bind notes where a UDP port leads. direct is about what comes from outside, all
// and here are its endpoints.
func (p *nodePlanner) bind(port Port, direct bool, all, here []Endpoint) {
	if port.Protocol != "udp" {
		return
	}
	to := addressesOf(all, here)
	p.state.UDP[netip.AddrPortFrom(p.cluster, port.Port)] = Binding{To: addressesOf(all, here), Direct: !port.onPods(p.family) && len(to) > 0}
	external := Binding{To: to, Direct: true, Routed: p.hands(port, len(all), len(here))}
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
			to[a] = true // Open vSwitch does not tell who is outside
		}
	}
	for _, e := range p.externals(p.family, port) {
		p.state.UDP[netip.AddrPortFrom(e.Addr, port.Port)] = external
	}
	if port.NodePort == 0 {
		return
	}
	for _, a := range append(slices.Clone(p.node.Gateway.Addrs), p.node.Host...) {
		if topology.FamilyOf(a.Addr()) == p.family {
			p.state.UDP[netip.AddrPortFrom(a.Addr(), port.NodePort)] = external
		}
	}
}

// hosts returns the addresses that the host itself has as a client.
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

// Entry is a UDP entry of connection tracking: Client sends to To, and answers are
// expected from From. Own tells the host's from those of Open vSwitch.
type Entry struct {
	Client    netip.Addr
	To, From  netip.AddrPort
	HostOwned bool
}

// Stale reports whether an entry leads where nobody serves any more.
func (b Bindings) Stale(e Entry) bool {
	binding, ok := b[e.To]
	switch {
	case !ok:
		return false
	case e.To == e.From:
		// OVN translates whatever it knows a load balancer for; this is from before.
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

// Removed reports whether something that b allowed is not allowed by next, so that there
// may be stale entries. Virtual addresses that are gone do not count: what is sent
// to them has no place to go to.
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
