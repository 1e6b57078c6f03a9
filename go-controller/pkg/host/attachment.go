package host

import (
	"fmt"
	"net/netip"
	"slices"
)

// Attachment is the configuration that the host has on one link: what has to move when another link
// takes its place.
type Attachment struct {
	Addrs  []LinkAddress `json:"addrs,omitempty"`
	Routes []LinkRoute   `json:"routes,omitempty"`
}

// LinkAddress is an address on a link as the host has configured it. Lifetimes are not kept:
// nothing would renew them on another link.
type LinkAddress struct {
	Prefix        netip.Prefix `json:"prefix"`
	Scope         int          `json:"scope,omitempty"`
	NoPrefixRoute bool         `json:"noPrefixRoute,omitempty"`
	// Leased is set if the address came with a lifetime, from a DHCP client or from router
	// advertisements.
	Leased bool `json:"leased,omitempty"`
	// Virtual is set if somebody has added the address to the bridge itself, beside the one with
	// its network, as protocols such as VRRP do whose addresses move between hosts.
	Virtual bool `json:"virtual,omitempty"`
}

// LinkHop is one next hop of a multipath LinkRoute.
type LinkHop struct {
	// Link is the interface of the next hop if it is not the one that the route is moved with.
	Link   string     `json:"link,omitempty"`
	Via    netip.Addr `json:"via"`
	Weight int        `json:"weight,omitempty"`
	OnLink bool       `json:"onLink,omitempty"`
}

// LinkRoute is a route through a link as the host has configured it. If Via is invalid, the route
// has no gateway.
type LinkRoute struct {
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
	Hops     []LinkHop    `json:"hops,omitempty"`
}

// SameAs reports whether two routes are equal apart from the link.
func (r LinkRoute) SameAs(o LinkRoute) bool {
	hops := slices.Equal(r.Hops, o.Hops)
	r.Hops, o.Hops = nil, nil
	return hops && fmt.Sprint(r) == fmt.Sprint(o)
}
