package reserved

import (
	"fmt"
	"net/netip"
	"slices"
)

// Refusal is why an address, or something else that a user wrote, is not accepted. The zero Refusal is none.
type Refusal struct {
	Reason  Reason
	Message string // what is wrong, following the name of the field and its value
}

// Reason is the machine-readable half of a Refusal, and the reason of Events.
type Reason string

// Reasons why an address is refused.
const (
	InvalidAddress   Reason = "InvalidAddress"
	InternalAddress  Reason = "InternalAddress"
	NodeAddress      Reason = "NodeAddress"
	APIServerAddress Reason = "APIServerAddress"
	GatewayAddress   Reason = "GatewayAddress"
	AddressTaken     Reason = "AddressTaken"
)

// broadcast is the limited broadcast address.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// thisNetwork are the source addresses of hosts that do not know their own.
var thisNetwork = netip.PrefixFrom(netip.IPv4Unspecified(), 8)

// Parse parses an address that traffic from other networks can have as destination. An IPv4-mapped IPv6 address is
// treated as IPv4.
func Parse(text string) (netip.Addr, Refusal) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, Refusal{InvalidAddress, "it is not an IP address"}
	}
	if a = a.Unmap(); NoHost(a) != "" {
		return netip.Addr{}, Refusal{InvalidAddress, "it is " + NoHost(a)}
	}
	return a, Refusal{}
}

// NoHost describes an address that no host can have on any network; "" if a host can have it.
func NoHost(a netip.Addr) string {
	switch {
	case a.IsUnspecified(), thisNetwork.Contains(a):
		return "an unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsMulticast():
		return "a multicast address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a == broadcast:
		return "the broadcast address"
	}
	return ""
}

// Ranges are the address ranges that the cluster uses for itself.
type Ranges struct {
	Pods, Services, Join, Masquerade []netip.Prefix
}

// Refuse returns why an address cannot be served because it is in one of the ranges.
func (r Ranges) Refuse(a netip.Addr) Refusal {
	for _, in := range []struct {
		name     string
		prefixes []netip.Prefix
	}{{"pod", r.Pods}, {"Service", r.Services}, {"join", r.Join}, {"masquerade", r.Masquerade}} {
		for _, p := range in.prefixes {
			if p.Contains(a) {
				return Refusal{InternalAddress, fmt.Sprintf("it is in the %s range %s of the cluster", in.name, p)}
			}
		}
	}
	return Refusal{}
}

// Kind is the kind of an address's owner.
type Kind uint8

// Kinds of owners, in the order in which they are reported.
const (
	Node Kind = iota + 1
	APIServer
	Gateway
	EgressIP
)

// Owner is an owner of an address; an address can have several.
type Owner struct {
	Kind Kind
	// Name is the name of the node, of the gateway's node, or of the EgressIP.
	Name string
	// Ports are the TCP ports of an API server.
	Ports []uint16
	// Extra: the node has the address in addition to its own, as a single address (/32 or /128). Some load balancer
	// providers put the addresses of Services on hosts that way.
	Extra bool
}

// Refuse returns why an address with this owner cannot be served.
func (o Owner) Refuse() Refusal {
	switch o.Kind {
	case Node:
		return Refusal{NodeAddress, "it is an address of node " + o.Name}
	case APIServer:
		return Refusal{APIServerAddress, "it is an address of the API server"}
	case Gateway:
		return Refusal{GatewayAddress, "it is the gateway of node " + o.Name}
	case EgressIP:
		return Refusal{AddressTaken, "EgressIP " + o.Name + " has it"}
	}
	return Refusal{}
}

// IsHost reports whether the owner is a host, which may itself forward traffic for its address to Services.
func (o Owner) IsHost() bool { return o.Kind == Node || o.Kind == APIServer }

// ClaimsOnly reports whether the owner says itself that it has the address, as each node does for itself and its gateway. Others
// decide about the remaining kinds.
func (o Owner) ClaimsOnly() bool { return o.Kind == Node || o.Kind == Gateway }

// Sort sorts owners in the order in which a refusal reports them.
func Sort(owners []Owner) {
	slices.SortFunc(owners, func(a, b Owner) int {
		if a.Kind != b.Kind {
			return int(a.Kind) - int(b.Kind)
		}
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
}
