package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// routeKey identifies a route in the kernel, apart from its link.
type routeKey struct {
	dst                netip.Prefix
	table, metric, tos int
}

func keyOf(r host.LinkRoute) routeKey { return routeKey{r.Dst, r.Table, r.Metric, r.TOS} }

// of returns the part of a that belongs to a family.
func of(a host.Attachment, f topology.Family) host.Attachment {
	var out host.Attachment
	for _, x := range a.Addrs {
		if topology.FamilyOf(x.Prefix.Addr()) == f {
			out.Addrs = append(out.Addrs, x)
		}
	}
	for _, x := range a.Routes {
		if topology.FamilyOf(x.Dst.Addr()) == f {
			out.Routes = append(out.Routes, x)
		}
	}
	return out
}

// union returns a plus the parts of b that a lacks. If both have an address or a route
// to the same destination, the one in a is used.
func union(a, b host.Attachment) host.Attachment {
	out := host.Attachment{Addrs: slices.Clone(a.Addrs), Routes: slices.Clone(a.Routes)}
	for _, x := range b.Addrs {
		if !slices.ContainsFunc(out.Addrs, func(h host.LinkAddress) bool { return h.Prefix == x.Prefix }) {
			out.Addrs = append(out.Addrs, x)
		}
	}
	for _, x := range b.Routes {
		if !slices.ContainsFunc(out.Routes, func(h host.LinkRoute) bool { return keyOf(h) == keyOf(x) }) {
			out.Routes = append(out.Routes, x)
		}
	}
	return out
}

// Without returns the addresses and routes in a that are not in b.
func Without(a, b host.Attachment) host.Attachment {
	return host.Attachment{
		Addrs: slices.DeleteFunc(slices.Clone(a.Addrs), func(x host.LinkAddress) bool {
			return slices.ContainsFunc(b.Addrs, func(h host.LinkAddress) bool { return h.Prefix == x.Prefix })
		}),
		Routes: slices.DeleteFunc(slices.Clone(a.Routes), func(x host.LinkRoute) bool {
			return slices.ContainsFunc(b.Routes, x.SameAs)
		}),
	}
}

// ordered sorts routes into the order in which they can be added: on-link routes first,
// because the others need them to reach their gateways.
func ordered(a host.Attachment) host.Attachment {
	slices.SortStableFunc(a.Routes, func(x, y host.LinkRoute) int {
		return cmp.Or(
			cmp.Compare(gatewayed(x), gatewayed(y)),
			cmp.Compare(y.Dst.Bits(), x.Dst.Bits()),
		)
	})
	return a
}

func gatewayed(r host.LinkRoute) int {
	if r.Via.IsValid() || len(r.Hops) > 0 {
		return 1
	}
	return 0
}

// Record is the host's attachment as stored in the bridge's row in the Open vSwitch database.
// It survives the loss of kernel state.
type Record struct {
	Uplink string `json:"uplink"`
	// Network is the physical network of the bridge; empty for the ordinary one.
	Network string `json:"network,omitempty"`
	// Created says that the bridge was created by ovnkube: cleanup removes it.
	Created bool `json:"created,omitempty"`
	// Link is the index of the bridge's interface that carried all of Host. A different
	// index means that the interface was recreated, 0 that none carries it yet.
	Link int             `json:"link,omitempty"`
	Host host.Attachment `json:"host"`
}

// On reports whether the record belongs to the bridge of a physical network.
func (r Record) On(network string) bool {
	return cmp.Or(r.Network, topology.PhysicalNetwork) == network
}

// For returns the record with the given physical network.
func (r Record) For(network string) Record {
	if r.Network = network; network == topology.PhysicalNetwork {
		r.Network = ""
	}
	return r
}

// String encodes a Record.
func (r Record) String() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode the host's attachment: %v", err)) // cannot happen: plain values only
	}
	return string(b)
}

// ParseRecord decodes a Record; "" is the zero Record.
func ParseRecord(text string) (Record, error) {
	var r Record
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("parse the recorded attachment of the host: %w", err)
	}
	return r, nil
}

// Renumbered returns the recorded leased IPv4 addresses of a bridge that the DHCP client
// has given up, since it has put another one on the uplink. A DHCP client has one lease, whereas
// a link may have several IPv6 addresses with lifetimes.
func Renumbered(onUplink, rec host.Attachment) []netip.Prefix {
	leased := func(a host.Attachment) (out []netip.Prefix) {
		for _, x := range of(a, topology.IPv4).Addrs {
			if x.Leased {
				out = append(out, x.Prefix)
			}
		}
		return out
	}
	now := leased(onUplink)
	if len(now) == 0 {
		return nil
	}
	return slices.DeleteFunc(leased(rec), func(p netip.Prefix) bool { return slices.Contains(now, p) })
}

// WithoutAddrs returns a without the given addresses and the routes that use them as source.
func WithoutAddrs(a host.Attachment, gone []netip.Prefix) host.Attachment {
	return host.Attachment{
		Addrs: slices.DeleteFunc(slices.Clone(a.Addrs), func(x host.LinkAddress) bool { return slices.Contains(gone, x.Prefix) }),
		Routes: slices.DeleteFunc(slices.Clone(a.Routes), func(x host.LinkRoute) bool {
			return slices.ContainsFunc(gone, func(p netip.Prefix) bool { return x.Src == p.Addr() })
		}),
	}
}

// known returns a with what a record of the same family says about its addresses: those on a bridge
// have no lifetimes, unless a client leases them for the bridge. A single address without one that is in the
// network of a recorded one, and was added since, is virtual.
func known(a, rec host.Attachment) host.Attachment {
	a.Addrs = slices.Clone(a.Addrs)
	for i, x := range a.Addrs {
		if j := slices.IndexFunc(rec.Addrs, func(y host.LinkAddress) bool { return y.Prefix == x.Prefix }); j >= 0 {
			a.Addrs[i].Leased, a.Addrs[i].Virtual = rec.Addrs[j].Leased, rec.Addrs[j].Virtual
			continue
		}
		a.Addrs[i].Virtual = !x.Leased && x.Prefix.IsSingleIP() && slices.ContainsFunc(rec.Addrs, func(y host.LinkAddress) bool {
			return !y.Prefix.IsSingleIP() && y.Prefix.Contains(x.Prefix.Addr())
		})
	}
	return a
}

// Lasting returns a without the virtual addresses that now does not have: another host may have them. Default
// routes with such a source remain, without it. If a has no other addresses of a family, they are the host's.
func Lasting(a, now host.Attachment) host.Attachment {
	var out host.Attachment
	for _, f := range topology.Families {
		part := of(a, f)
		var virtual []netip.Prefix
		for _, x := range part.Addrs {
			if x.Virtual && !slices.ContainsFunc(now.Addrs, func(y host.LinkAddress) bool { return y.Prefix == x.Prefix }) {
				virtual = append(virtual, x.Prefix)
			}
		}
		if len(virtual) < len(part.Addrs) {
			part.Routes = slices.Clone(part.Routes)
			for i, r := range part.Routes {
				if r.Dst.Bits() == 0 && slices.ContainsFunc(virtual, func(p netip.Prefix) bool { return p.Addr() == r.Src }) {
					part.Routes[i].Src = netip.Addr{}
				}
			}
			part = WithoutAddrs(part, virtual)
		}
		out.Addrs, out.Routes = append(out.Addrs, part.Addrs...), append(out.Routes, part.Routes...)
	}
	return out
}

// TakeOver returns the state that the interface "to" must carry when it replaces
// "from". rec is the recorded state of "to"; lost says that "to" may have
// lost its state because it was recreated or was down. The state of "from" is
// the newest; if it has no addresses of a family and "to" has lost its own, the record
// is restored, without virtual addresses.
func TakeOver(from, to, rec host.Attachment, lost bool) host.Attachment {
	var want host.Attachment
	for _, f := range topology.Families {
		u, r := of(from, f), of(rec, f)
		b := known(of(to, f), r)
		part := union(u, b)
		if len(u.Addrs) == 0 && (lost || len(b.Addrs) == 0) {
			part = union(part, Lasting(r, b))
		}
		want.Addrs = append(want.Addrs, part.Addrs...)
		want.Routes = append(want.Routes, part.Routes...)
	}
	return ordered(want)
}

// Primary returns the node's address of each requested family: the one in the Node
// object, else the first that is not a single-address prefix, else the first.
func Primary(a host.Attachment, families []topology.Family, internal []netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, f := range families {
		addrs := of(a, f).Addrs
		if len(addrs) == 0 {
			continue
		}
		rank := func(p netip.Prefix) int {
			switch {
			case slices.Contains(internal, p.Addr()):
				return 0
			case !p.IsSingleIP():
				return 1
			}
			return 2
		}
		best := slices.MinFunc(addrs, func(x, y host.LinkAddress) int { return cmp.Compare(rank(x.Prefix), rank(y.Prefix)) })
		out = append(out, best.Prefix)
	}
	return out
}

// NextHops returns the default gateways of the requested families: the
// configured ones, else those of the default routes with the lowest metric. An IPv6 gateway of the
// host's IPv4 routes is none: northbound routes are of one family.
func NextHops(a host.Attachment, families []topology.Family, configured []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, f := range families {
		var mine []netip.Addr
		for _, c := range configured {
			if topology.FamilyOf(c) == f {
				mine = append(mine, c)
			}
		}
		if len(mine) == 0 {
			mine = slices.DeleteFunc(defaultGateways(of(a, f).Routes), func(hop netip.Addr) bool { return topology.FamilyOf(hop) != f })
		}
		out = append(out, mine...)
	}
	return out
}

func defaultGateways(routes []host.LinkRoute) []netip.Addr {
	var best *host.LinkRoute
	for i, r := range routes {
		if r.Dst.Bits() == 0 && r.Table == topology.MainTable && gatewayed(r) == 1 && (best == nil || r.Metric < best.Metric) {
			best = &routes[i]
		}
	}
	if best == nil {
		return nil
	}
	var out []netip.Addr
	if best.Via.IsValid() {
		out = append(out, best.Via)
	}
	for _, h := range best.Hops {
		if h.Link == "" && h.Via.IsValid() {
			out = append(out, h.Via)
		}
	}
	return out
}
