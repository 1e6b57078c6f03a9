package reserved

import (
	"fmt"
	"net/netip"
	"slices"
)

// Refusal says why an address, or something else that a user wrote, is not taken.
// The zero Refusal is none.
type Refusal struct {
	Reason  Reason
	Message string // what is wrong, to come after the name of the field and its value
}

// Reason is the machine-readable half of a Refusal, and the reason of Events.
type Reason string

// The reasons for which an address is refused.
const (
	InvalidAddress   Reason = "InvalidAddress"
	InternalAddress  Reason = "InternalAddress"
	NodeAddress      Reason = "NodeAddress"
	APIServerAddress Reason = "APIServerAddress"
	GatewayAddress   Reason = "GatewayAddress"
	AddressTaken     Reason = "AddressTaken"
)

// broadcast is the address of everybody on a link.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// thisNetwork are the addresses of hosts that do not know theirs.
var thisNetwork = netip.PrefixFrom(netip.IPv4Unspecified(), 8)

// Parse decodes an address that traffic from other networks can be for. An IPv4
// address that is written as an IPv6 address is taken for what it is.
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

// NoHost says what an address is that no host has on a network, whatever the network; "" for
// one that a host can have.
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

// Ranges are the ranges of addresses that the cluster uses for itself.
type Ranges struct {
	Pods, Services, Join, Masquerade []netip.Prefix
}

// Refuse returns why an address cannot be served: it is in one of the ranges.
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

// Kind is what the owner of an address is.
type Kind uint8

// The kinds of owners, in the order in which they are named.
const (
	Node Kind = iota + 1
	APIServer
	Gateway
	EgressIP
)

// Owner is who has an address. Several can have one.
type Owner struct {
	Kind Kind
	// Name is that of the node, of the node whose gateway it is, or of the EgressIP.
	Name string
	// Ports are those of an API server, by TCP.
	Ports []uint16
}

// Refuse returns why an address that somebody has cannot be served.
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

// IsHost reports whether the owner is a host, which may forward to Services by itself
// what comes for its address.
func (o Owner) IsHost() bool { return o.Kind == Node || o.Kind == APIServer }

// Sort puts owners in the order in which a refusal names them.
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
