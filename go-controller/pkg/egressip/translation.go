package egressip

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Translations are the source translations in force of a node's gateway router, and what
// tells which of its connections go on with another one: a connection keeps the
// translation that it began with, whatever the router would give to a new one.
type Translations struct {
	To map[netip.Prefix][]netip.Addr // by source: a pod, or a subnet
	// Held are the addresses that the node answers for on its primary network. What it has
	// handed over to another node goes on here for a while.
	Held map[netip.Addr]bool
	Node topology.Node
	// Local are those that pods reach by their own node, with its address: their
	// connections go on as they are.
	Local []netip.Prefix
}

// NewTranslations returns those of a node. The hosts are the addresses of nodes and API servers.
func NewTranslations(all []host.Translation, node topology.Node, held map[netip.Addr]bool, hosts []netip.Addr, local []netip.Prefix) Translations {
	t := Translations{To: map[netip.Prefix][]netip.Addr{}, Held: map[netip.Addr]bool{}, Node: node, Local: slices.Clone(local)}
	for _, one := range all {
		t.To[one.Source] = append(t.To[one.Source], one.To)
	}
	for a := range held {
		if held[a] && OnPrimary(node, a) && !IsOwn(node, a) {
			t.Held[a] = true
		}
	}
	for _, a := range hosts {
		t.Local = append(t.Local, topology.HostPrefix(a))
	}
	return t
}

// own tells whether an address is that of the gateway router.
func (t Translations) own(a netip.Addr) bool {
	return slices.ContainsFunc(t.Node.Gateway.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

// of returns what the router gives to a source; none: it does not translate it.
func (t Translations) of(src netip.Addr) []netip.Addr {
	for bits := src.BitLen(); bits >= 0; bits-- {
		if p, err := src.Prefix(bits); err == nil && t.To[p] != nil {
			return t.To[p]
		}
	}
	return nil
}

// Stale tells whether a connection, which the other side sees come from to, has an address
// that the router does not give to its source any more. Without any translation nothing is known:
// the switch has been restarted, or everything is being written anew.
func (t Translations) Stale(src, dst, to netip.Addr) bool {
	is := t.of(src)
	switch {
	case len(t.To) == 0, slices.Contains(is, to):
		return false
	case slices.ContainsFunc(t.Local, func(p netip.Prefix) bool { return p.Contains(dst) }):
		return false
	case t.Held[to]:
		return true
	}
	return t.own(to) && len(is) > 0 // else the host has translated it
}
