package link

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Gateway returns the gateway of a route or of one of its next hops, given its Gw and Via: that of an IPv4 route may be
// an IPv6 address. It is invalid if there is none.
func Gateway(gw net.IP, via netlink.Destination) netip.Addr {
	if v, ok := via.(*netlink.Via); ok {
		gw = v.Addr
	}
	a, _ := netip.AddrFromSlice(gw)
	return a.Unmap()
}

// EncodeGateway returns the Gw and the Via of a route to dst by a gateway, the opposite of Gateway.
func EncodeGateway(dst netip.Prefix, gateway netip.Addr) (net.IP, netlink.Destination) {
	switch {
	case !gateway.IsValid():
		return nil, nil
	case dst.Addr().Is4() && gateway.Is6():
		return nil, &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: gateway.AsSlice()}
	}
	return gateway.AsSlice(), nil
}
