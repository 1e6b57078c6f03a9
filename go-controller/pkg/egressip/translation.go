package egressip

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Translations are the source translations in force on a node's gateway router, with the data
// that decides which connections still use an outdated one: a connection keeps the
// translation that it started with, whatever the router would give to a new connection.
type Translations struct {
	To map[netip.Prefix][]netip.Addr // by source: a pod, or a subnet
	// Held are the addresses that the node answers for on its primary network. Connections with
	// addresses handed over to another node continue here for a while.
	Held map[netip.Addr]bool
	Node topology.Node
	// Local are the destinations that pods reach through their own node, with its address: their
	// connections are left alone.
	Local []netip.Prefix
}

// NewTranslations returns the Translations of a node. hosts are the addresses of nodes and API servers.
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

// own reports whether an address is that of the gateway router.
func (t Translations) own(a netip.Addr) bool {
	return slices.ContainsFunc(t.Node.Gateway.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

// of returns the addresses that the router gives to a source, or nil if it does not translate it.
func (t Translations) of(src netip.Addr) []netip.Addr {
	for bits := src.BitLen(); bits >= 0; bits-- {
		if p, err := src.Prefix(bits); err == nil && t.To[p] != nil {
			return t.To[p]
		}
	}
	return nil
}

// Stale reports whether a connection uses a source address that the router no longer gives to its
// source; to is the address that the other side sees. Without any translations nothing is known:
// the switch was restarted, or everything is being rewritten.
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
	return t.own(to) && len(is) > 0 // otherwise the host translated it
}
