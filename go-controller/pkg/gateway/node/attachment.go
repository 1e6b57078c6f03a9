package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// readAttachment returns the addresses on a link and the routes through it, but
// for what the kernel makes by itself and what is ours.
func readAttachment(link netlink.Link) (gateway.Attachment, error) {
	var out gateway.Attachment
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return out, fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addrs {
		p := prefixOf(a.IPNet)
		temporary := p.Addr().Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0
		if p.Addr().IsLinkLocalUnicast() || temporary {
			continue
		}
		out.Addrs = append(out.Addrs, gateway.Address{
			Prefix: p, Scope: a.Scope, NoPrefixRoute: a.Flags&unix.IFA_F_NOPREFIXROUTE != 0,
		})
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL,
		&netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return out, fmt.Errorf("list routes: %w", err)
	}
	names, err := linkNames()
	if err != nil {
		return out, err
	}
	for _, r := range routes {
		if route, ok := decodeRoute(r, link.Attrs().Index, names); ok {
			out.Routes = append(out.Routes, route)
		}
	}
	return out, nil
}

func linkNames() (map[int]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names, nil
}

// decodeRoute returns r where it goes through link and is to move with it.
func decodeRoute(r netlink.Route, link int, names map[int]string) (gateway.Route, bool) {
	through := r.LinkIndex == link
	for _, h := range r.MultiPath {
		through = through || h.LinkIndex == link
	}
	out := gateway.Route{
		Dst: destination(r), Table: r.Table, Metric: r.Priority, TOS: r.Tos, Protocol: int(r.Protocol),
		Scope: int(r.Scope), Src: addrOf(r.Src), Via: addrOf(r.Gw), OnLink: r.Flags&unix.RTNH_F_ONLINK != 0,
		MTU: r.MTU, AdvMSS: r.AdvMSS,
	}
	kernels := r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST ||
		out.Dst.Addr().IsLinkLocalUnicast() || out.Dst.Addr().IsMulticast()
	if !through || kernels || r.Protocol == host.Protocol {
		return gateway.Route{}, false
	}
	for _, h := range r.MultiPath {
		hop := gateway.Hop{Via: addrOf(h.Gw), Weight: h.Hops, OnLink: h.Flags&unix.RTNH_F_ONLINK != 0}
		if h.LinkIndex != link {
			hop.Link = names[h.LinkIndex]
		}
		out.Hops = append(out.Hops, hop)
	}
	return out, true
}

// addAddresses adds the addresses of want that have lacks.
func addAddresses(link netlink.Link, want, have gateway.Attachment) (int, error) {
	present := map[netip.Prefix]bool{}
	for _, a := range have.Addrs {
		present[a.Prefix] = true
	}
	n := 0
	for _, a := range want.Addrs {
		if present[a.Prefix] {
			continue
		}
		x := &netlink.Addr{IPNet: ipnet(a.Prefix), Scope: a.Scope}
		if a.Prefix.Addr().Is6() {
			x.Flags |= unix.IFA_F_NODAD // the host has had it all along
		}
		if a.NoPrefixRoute {
			x.Flags |= unix.IFA_F_NOPREFIXROUTE
		}
		if err := netlink.AddrReplace(link, x); err != nil {
			return n, fmt.Errorf("add address %s to %s: %w", a.Prefix, link.Attrs().Name, err)
		}
		n++
	}
	return n, nil
}

// addRoutes puts those routes of want on link that have lacks. A route to the
// same destination through "from" is replaced, without a moment in between.
func addRoutes(link, from netlink.Link, want, have gateway.Attachment) (int, error) {
	names, err := linkNames()
	if err != nil {
		return 0, err
	}
	indexes := map[string]int{}
	for i, n := range names {
		indexes[n] = i
	}
	n := 0
	for _, r := range want.Routes {
		if contains(have.Routes, r) {
			continue
		}
		route, err := encodeRoute(r, link.Attrs().Index, indexes)
		if err != nil {
			return n, err
		}
		if err := putRoute(route, link, from); err != nil {
			return n, fmt.Errorf("add route to %s via %s dev %s: %w", r.Dst, r.Via, link.Attrs().Name, err)
		}
		n++
	}
	return n, nil
}

func contains(routes []gateway.Route, r gateway.Route) bool {
	for _, h := range routes {
		if h.SameAs(r) {
			return true
		}
	}
	return false
}

// putRoute replaces the route of the same key, unless that one goes through a
// third interface: then the new one is added behind it.
func putRoute(route *netlink.Route, link, from netlink.Link) error {
	same, err := netlink.RouteListFiltered(route.Family, &netlink.Route{Dst: route.Dst, Table: route.Table},
		netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, s := range same {
		if s.Priority != route.Priority || s.Tos != route.Tos || len(s.MultiPath) > 0 {
			continue
		}
		if s.LinkIndex != link.Attrs().Index && (from == nil || s.LinkIndex != from.Attrs().Index) {
			if err := netlink.RouteAppend(route); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
			return nil
		}
	}
	return netlink.RouteReplace(route)
}

func encodeRoute(r gateway.Route, link int, indexes map[string]int) (*netlink.Route, error) {
	out := &netlink.Route{
		LinkIndex: link, Dst: ipnet(r.Dst), Table: r.Table, Priority: r.Metric, Tos: r.TOS,
		Protocol: netlink.RouteProtocol(r.Protocol), Scope: netlink.Scope(r.Scope),
		Type: unix.RTN_UNICAST, MTU: r.MTU, AdvMSS: r.AdvMSS, Family: netlink.FAMILY_V4,
	}
	if r.Dst.Addr().Is6() {
		out.Family = netlink.FAMILY_V6
	}
	if r.Src.IsValid() {
		out.Src = r.Src.AsSlice()
	}
	if r.Via.IsValid() {
		out.Gw = r.Via.AsSlice()
	}
	if r.OnLink {
		out.Flags = unix.RTNH_F_ONLINK
	}
	for _, h := range r.Hops {
		hop := &netlink.NexthopInfo{LinkIndex: link, Hops: h.Weight}
		if h.Link != "" {
			index, ok := indexes[h.Link]
			if !ok {
				return nil, fmt.Errorf("route to %s has a next hop through %s, which is not there", r.Dst, h.Link)
			}
			hop.LinkIndex = index
		}
		if h.Via.IsValid() {
			hop.Gw = h.Via.AsSlice()
		}
		if h.OnLink {
			hop.Flags = unix.RTNH_F_ONLINK
		}
		out.MultiPath = append(out.MultiPath, hop)
	}
	if len(out.MultiPath) > 0 {
		out.LinkIndex = 0
	}
	return out, nil
}

// strip takes addresses and routes from a link; what is gone already is no error.
func strip(link netlink.Link, a gateway.Attachment) error {
	for _, x := range a.Addrs {
		err := netlink.AddrDel(link, &netlink.Addr{IPNet: ipnet(x.Prefix)})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("delete address %s from %s: %w", x.Prefix, link.Attrs().Name, err)
		}
	}
	left, err := readAttachment(link)
	if err != nil {
		return err
	}
	for _, r := range left.Routes {
		if len(r.Hops) > 0 {
			continue // shared with other interfaces
		}
		route, err := encodeRoute(r, link.Attrs().Index, nil)
		if err != nil {
			return err
		}
		if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("delete route to %s via %s dev %s: %w", r.Dst, r.Via, link.Attrs().Name, err)
		}
	}
	return nil
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), bits)
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func destination(r netlink.Route) netip.Prefix {
	switch {
	case r.Dst != nil:
		return prefixOf(r.Dst)
	case r.Family == netlink.FAMILY_V6:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}
