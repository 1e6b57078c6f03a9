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
	// Direct: the kernel of the host translates, so that an entry of its own
	// without translation, made before there were rules, is stale.
	Direct bool
}

// bind notes where a UDP port leads. direct is about what comes from outside.
func (p *nodePlanner) bind(port Port, direct bool) {
	if port.Protocol != "udp" {
		return
	}
	to := map[netip.AddrPort]bool{}
	for _, e := range port.Endpoints(p.family) {
		to[e.To] = true
	}
	for _, e := range port.Local(p.family, p.node.Name) {
		to[e.To] = true
	}
	onHost := !port.onPods(p.family) && len(to) > 0
	if !direct {
		to[netip.AddrPortFrom(p.cluster, port.Port)] = true
	}
	p.state.UDP[netip.AddrPortFrom(p.cluster, port.Port)] = Binding{to, onHost}
	for _, e := range p.externals(p.family) {
		p.state.UDP[netip.AddrPortFrom(e.Addr, port.Port)] = Binding{to, true}
	}
	if port.NodePort == 0 {
		return
	}
	to[netip.AddrPortFrom(p.localVIP, port.NodePort)] = true
	for _, a := range append(slices.Clone(p.node.Gateway.Addrs), p.node.Host...) {
		if topology.FamilyOf(a.Addr()) == p.family {
			p.state.UDP[netip.AddrPortFrom(a.Addr(), port.NodePort)] = Binding{to, true}
		}
	}
}

// Stale tells whether an entry leads where nobody serves any more: to is where
// the client sends, and from where answers are expected from. own says that the
// entry is the host's, not one of Open vSwitch.
func (b Bindings) Stale(to, from netip.AddrPort, own bool) bool {
	binding, ok := b[to]
	switch {
	case !ok:
		return false
	case to == from:
		return own && binding.Direct
	}
	return !binding.To[from]
}

// Lost tells whether something that b allowed is not allowed by next, so that there
// may be stale entries. Virtual addresses that are gone do not count: what is sent
// to them has no place to go to.
func (b Bindings) Lost(next Bindings) bool {
	for virtual, after := range next {
		before, ok := b[virtual]
		if after.Direct && !(ok && before.Direct) {
			return true
		}
		for to := range before.To {
			if !after.To[to] {
				return true
			}
		}
	}
	return false
}
