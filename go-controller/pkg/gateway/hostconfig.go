package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Address is an address on the uplink or on the bridge. Lifetimes are not kept:
// nobody would renew them on the bridge.
type Address struct {
	Prefix        netip.Prefix `json:"prefix"`
	Scope         int          `json:"scope,omitempty"`
	NoPrefixRoute bool         `json:"noPrefixRoute,omitempty"`
}

// Hop is one next hop of a Route with several.
type Hop struct {
	// Link is another interface than the one the route is moved with.
	Link   string     `json:"link,omitempty"`
	Via    netip.Addr `json:"via"`
	Weight int        `json:"weight,omitempty"`
	OnLink bool       `json:"onLink,omitempty"`
}

// Route is a route through the uplink or the bridge.
type Route struct {
	Dst      netip.Prefix `json:"dst"`
	Table    int          `json:"table"`
	Metric   int          `json:"metric,omitempty"`
	TOS      int          `json:"tos,omitempty"`
	Protocol int          `json:"protocol,omitempty"`
	Scope    int          `json:"scope,omitempty"`
	Src      netip.Addr   `json:"src"`
	Via      netip.Addr   `json:"via"`
	OnLink   bool         `json:"onLink,omitempty"`
	MTU      int          `json:"mtu,omitempty"`
	AdvMSS   int          `json:"advmss,omitempty"`
	Hops     []Hop        `json:"hops,omitempty"`
}

// routeKey is what the kernel holds at most one route for, links apart.
type routeKey struct {
	dst                netip.Prefix
	table, metric, tos int
}

func (r Route) key() routeKey { return routeKey{r.Dst, r.Table, r.Metric, r.TOS} }

func (r Route) family() topology.Family { return topology.FamilyOf(r.Dst.Addr()) }

// SameAs tells whether two routes are the same but for the interface.
func (r Route) SameAs(o Route) bool {
	hops := slices.Equal(r.Hops, o.Hops)
	r.Hops, o.Hops = nil, nil
	return hops && fmt.Sprint(r) == fmt.Sprint(o)
}

// Default tells whether the route leads to everywhere.
func (r Route) Default() bool { return r.Dst.Bits() == 0 }

// Attachment is what a host has on one interface: what has to move when
// another interface takes its place.
type Attachment struct {
	Addrs  []Address `json:"addrs,omitempty"`
	Routes []Route   `json:"routes,omitempty"`
}

func (a Attachment) of(f topology.Family) Attachment {
	var out Attachment
	for _, x := range a.Addrs {
		if topology.FamilyOf(x.Prefix.Addr()) == f {
			out.Addrs = append(out.Addrs, x)
		}
	}
	for _, x := range a.Routes {
		if x.family() == f {
			out.Routes = append(out.Routes, x)
		}
	}
	return out
}

// union returns a with what only b has. Where both have an address or a route
// to the same destination, a's is taken.
func (a Attachment) union(b Attachment) Attachment {
	out := Attachment{Addrs: slices.Clone(a.Addrs), Routes: slices.Clone(a.Routes)}
	for _, x := range b.Addrs {
		if !slices.ContainsFunc(out.Addrs, func(h Address) bool { return h.Prefix == x.Prefix }) {
			out.Addrs = append(out.Addrs, x)
		}
	}
	for _, x := range b.Routes {
		if !slices.ContainsFunc(out.Routes, func(h Route) bool { return h.key() == x.key() }) {
			out.Routes = append(out.Routes, x)
		}
	}
	return out
}

// ordered puts routes in the order they can be added: those on link first,
// because the others need them to reach their gateways.
func (a Attachment) ordered() Attachment {
	slices.SortStableFunc(a.Routes, func(x, y Route) int {
		return cmp.Or(
			cmp.Compare(gatewayed(x), gatewayed(y)),
			cmp.Compare(y.Dst.Bits(), x.Dst.Bits()),
		)
	})
	return a
}

func gatewayed(r Route) int {
	if r.Via.IsValid() || len(r.Hops) > 0 {
		return 1
	}
	return 0
}

// Record is what the bridge's row in the Open vSwitch database remembers: how
// the host was attached. It survives what the kernel forgets.
type Record struct {
	Uplink string `json:"uplink"`
	// Created says that the bridge is ours: cleaning up removes it.
	Created bool `json:"created,omitempty"`
	// Link is the number of the bridge's interface that carried Host; another
	// number means that the interface was made anew.
	Link int        `json:"link,omitempty"`
	Host Attachment `json:"host"`
}

// String encodes a Record.
func (r Record) String() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode the host's attachment: %v", err)) // plain values only
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

// TakeOver returns what the interface "to" must carry when it takes the place of
// "from". rec is what was recorded of "to", and lost says that "to" may have
// lost what it carried, because it was made anew or was down. What "from" has is
// newest; where it has nothing of a family and "to" has lost it, the record
// comes back.
func TakeOver(from, to Attachment, rec Attachment, lost bool) Attachment {
	var want Attachment
	for _, f := range topology.Families {
		u, b, r := from.of(f), to.of(f), rec.of(f)
		part := u.union(b)
		if len(u.Addrs) == 0 && (lost || len(b.Addrs) == 0) {
			part = part.union(r)
		}
		want.Addrs = append(want.Addrs, part.Addrs...)
		want.Routes = append(want.Routes, part.Routes...)
	}
	return want.ordered()
}

// Primary returns the node's address of each family asked for: the one the Node
// object names, else the first that is no single-address prefix, else the first.
func Primary(a Attachment, families []topology.Family, internal []netip.Addr) []netip.Prefix {
	var out []netip.Prefix
	for _, f := range families {
		addrs := a.of(f).Addrs
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
		best := slices.MinFunc(addrs, func(x, y Address) int { return cmp.Compare(rank(x.Prefix), rank(y.Prefix)) })
		out = append(out, best.Prefix)
	}
	return out
}

// NextHops returns the default gateways of the families asked for: the
// configured ones, else those of the default routes with the lowest metric.
func NextHops(a Attachment, families []topology.Family, configured []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, f := range families {
		var mine []netip.Addr
		for _, c := range configured {
			if topology.FamilyOf(c) == f {
				mine = append(mine, c)
			}
		}
		if len(mine) == 0 {
			mine = defaultGateways(a.of(f).Routes)
		}
		out = append(out, mine...)
	}
	return out
}

// mainTable is the number of the kernel's main routing table.
const mainTable = 254

func defaultGateways(routes []Route) []netip.Addr {
	var best *Route
	for i, r := range routes {
		if r.Default() && r.Table == mainTable && gatewayed(r) == 1 && (best == nil || r.Metric < best.Metric) {
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
