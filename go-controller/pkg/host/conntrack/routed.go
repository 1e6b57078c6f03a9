package conntrack

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FlushRouted deletes the entries of the host's zone of connections of some sources that come in by
// a link and have another address than the host would masquerade them with now: none of the link by
// which they leave. It returns how many there were. of selects connections by source and
// destination. A connection that the host cannot route stays,
// as all do without that link.
func FlushRouted(_ context.Context, in string, families []topology.Family, of func(src, dst netip.Addr) bool) (int, error) {
	total := 0
	for _, f := range families {
		ways := map[[2]netip.Addr][]netip.Addr{}
		n, err := deleteMatching(f, matcher(func(flow *netlink.ConntrackFlow) bool {
			src, dst, to := addrOf(flow.Forward.SrcIP), addrOf(flow.Reverse.SrcIP), addrOf(flow.Reverse.DstIP)
			if flow.Zone != 0 || src == to || !of(src, dst) {
				return false
			}
			pair := [2]netip.Addr{src, dst}
			if _, known := ways[pair]; !known {
				ways[pair] = masquerades(in, src, dst)
			}
			return len(ways[pair]) > 0 && !slices.Contains(ways[pair], to)
		}))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// masquerades returns the addresses that the host may give a packet: those of the link by which it
// leaves, or if the next hop is in the networks of some of them, those, and single addresses, which
// may be egress addresses. It returns none if that is not known.
func masquerades(in string, src, dst netip.Addr) []netip.Addr {
	routes, err := netlink.RouteGetWithOptions(dst.AsSlice(), &netlink.RouteGetOptions{Iif: in, SrcAddr: src.AsSlice()})
	if err != nil || len(routes) == 0 {
		return nil
	}
	out, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return nil
	}
	family := netlink.FAMILY_V4
	if dst.Is6() {
		family = netlink.FAMILY_V6
	}
	addrs, err := netlink.AddrList(out, family)
	if err != nil {
		return nil
	}
	hop := dst
	if routes[0].Gw != nil {
		hop = addrOf(routes[0].Gw)
	}
	var all, near []netip.Addr
	found := false
	for _, a := range addrs {
		if a.IP.IsLinkLocalUnicast() {
			continue
		}
		all = append(all, addrOf(a.IP))
		ones, bits := a.Mask.Size()
		inside := a.Contains(hop.AsSlice())
		found = found || inside
		if inside || ones == bits {
			near = append(near, addrOf(a.IP))
		}
	}
	if found && dst.Is4() { // IPv6 chooses by the destination
		return near
	}
	return all
}
