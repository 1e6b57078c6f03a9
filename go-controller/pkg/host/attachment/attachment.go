// Package attachment is the driver for the addresses and routes that the host itself has on a link:
// it reads them, and moves them to another link so that the host stays reachable. What the kernel
// adds by itself (routes of the local table, link-local and temporary addresses) and our own routes
// (host.Protocol) do not move.
//
// Functions act in the network namespace of the calling thread.
//
// Callers: the node's gateway, which moves the host's configuration to the external bridge and back
// to its uplink.
package attachment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
)

// Read returns the addresses on a link and the routes through it.
func Read(name string) (host.Attachment, error) {
	link, err := get(name)
	if err != nil {
		return host.Attachment{}, err
	}
	return read(link)
}

func get(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return link, nil
}

func read(link netlink.Link) (host.Attachment, error) {
	var out host.Attachment
	addrs, err := listAddrs(link)
	if err != nil {
		return out, fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addrs {
		p := prefixOf(a.IPNet)
		temporary := p.Addr().Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0
		if p.Addr().IsLinkLocalUnicast() || temporary {
			continue
		}
		out.Addrs = append(out.Addrs, host.LinkAddress{
			Prefix: p, Scope: a.Scope, NoPrefixRoute: a.Flags&unix.IFA_F_NOPREFIXROUTE != 0,
			Leased: a.Flags&unix.IFA_F_PERMANENT == 0,
		})
	}
	routes, err := listRoutes(netlink.FAMILY_ALL,
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
	links, err := link.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names, nil
}

// decodeRoute returns r if it goes through link and has to move with it.
func decodeRoute(r netlink.Route, dev int, names map[int]string) (host.LinkRoute, bool) {
	through := r.LinkIndex == dev
	for _, h := range r.MultiPath {
		through = through || h.LinkIndex == dev
	}
	out := host.LinkRoute{
		Dst: destination(r), Table: r.Table, Metric: r.Priority, TOS: r.Tos, Protocol: int(r.Protocol),
		Scope: int(r.Scope), Src: addrOf(r.Src), Via: link.Gateway(r.Gw, r.Via), OnLink: r.Flags&unix.RTNH_F_ONLINK != 0,
		MTU: r.MTU, AdvMSS: r.AdvMSS,
	}
	kernels := r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST ||
		out.Dst.Addr().IsLinkLocalUnicast() || out.Dst.Addr().IsMulticast()
	if !through || kernels || r.Protocol == host.Protocol {
		return host.LinkRoute{}, false
	}
	for _, h := range r.MultiPath {
		hop := host.LinkHop{Via: link.Gateway(h.Gw, h.Via), Weight: h.Hops, OnLink: h.Flags&unix.RTNH_F_ONLINK != 0}
		if h.LinkIndex != dev {
			hop.Link = names[h.LinkIndex]
		}
		out.Hops = append(out.Hops, hop)
	}
	return out, true
}

// AddAddresses adds the addresses of want that a link lacks, and returns how many it added. They
// are usable at once.
func AddAddresses(name string, want host.Attachment) (int, error) {
	link, err := get(name)
	if err != nil {
		return 0, err
	}
	have, err := read(link)
	if err != nil {
		return 0, err
	}
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
			x.Flags |= unix.IFA_F_NODAD // no conflict: the host had it all along
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

// AddRoutes adds the routes of want that a link lacks, and returns how many it added. A route to
// the same destination through the link from is replaced without a gap; from may be gone. A route
// through a third link keeps precedence. Routes that cannot be added are retried as long as others can:
// a gateway may be reached by another route, and the kernel lists default routes first.
func AddRoutes(name, from string, want host.Attachment) (int, error) {
	link, err := get(name)
	if err != nil {
		return 0, err
	}
	have, err := read(link) // including the routes that the kernel adds for addresses
	if err != nil {
		return 0, err
	}
	names, err := linkNames()
	if err != nil {
		return 0, err
	}
	indexes := map[string]int{}
	for i, n := range names {
		indexes[n] = i
	}
	todo := slices.DeleteFunc(slices.Clone(want.Routes), func(r host.LinkRoute) bool { return contains(have.Routes, r) })
	for n := 0; ; {
		var failed []host.LinkRoute
		var errs []error
		for _, r := range todo {
			if err := addRoute(r, link, from, indexes); err != nil {
				failed, errs = append(failed, r), append(errs, err)
				continue
			}
			n++
		}
		if len(failed) == 0 || len(failed) == len(todo) {
			return n, errors.Join(errs...)
		}
		todo = failed
	}
}

// addRoute adds one route; indexes are those of all links.
func addRoute(r host.LinkRoute, link netlink.Link, from string, indexes map[string]int) error {
	route, err := encodeRoute(r, link.Attrs().Index, indexes)
	if err != nil {
		return err
	}
	if err := putRoute(route, link, indexes[from]); err != nil {
		return fmt.Errorf("add route to %s via %s dev %s: %w", r.Dst, r.Via, link.Attrs().Name, err)
	}
	return nil
}

func contains(routes []host.LinkRoute, r host.LinkRoute) bool {
	for _, h := range routes {
		if h.SameAs(r) {
			return true
		}
	}
	return false
}

// putRoute replaces the route with the same key, unless that one goes through a link that is
// neither this one nor the one with index from: then the new route is added behind it.
func putRoute(route *netlink.Route, link netlink.Link, from int) error {
	same, err := listRoutes(route.Family, &netlink.Route{Dst: route.Dst, Table: route.Table},
		netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, s := range same {
		// The kernel keeps a route from router advertisements beside others with its key, and does not replace it.
		learned := s.Protocol == unix.RTPROT_RA && route.Protocol != unix.RTPROT_RA
		if s.Priority != route.Priority || s.Tos != route.Tos || len(s.MultiPath) > 0 || learned {
			continue
		}
		if s.LinkIndex != link.Attrs().Index && s.LinkIndex != from {
			if err := netlink.RouteAppend(route); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
			return nil
		}
	}
	return netlink.RouteReplace(route)
}

func encodeRoute(r host.LinkRoute, dev int, indexes map[string]int) (*netlink.Route, error) {
	out := &netlink.Route{
		LinkIndex: dev, Dst: ipnet(r.Dst), Table: r.Table, Priority: r.Metric, Tos: r.TOS,
		Protocol: netlink.RouteProtocol(r.Protocol), Scope: netlink.Scope(r.Scope),
		Type: unix.RTN_UNICAST, MTU: r.MTU, AdvMSS: r.AdvMSS, Family: netlink.FAMILY_V4,
	}
	if r.Dst.Addr().Is6() {
		out.Family = netlink.FAMILY_V6
	}
	if r.Src.IsValid() {
		out.Src = r.Src.AsSlice()
	}
	out.Gw, out.Via = link.EncodeGateway(r.Dst, r.Via)
	if r.OnLink {
		out.Flags = unix.RTNH_F_ONLINK
	}
	for _, h := range r.Hops {
		hop := &netlink.NexthopInfo{LinkIndex: dev, Hops: h.Weight}
		if h.Link != "" {
			index, ok := indexes[h.Link]
			if !ok {
				return nil, fmt.Errorf("route to %s has a next hop through %s, which is not there", r.Dst, h.Link)
			}
			hop.LinkIndex = index
		}
		hop.Gw, hop.Via = link.EncodeGateway(r.Dst, h.Via)
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

// Strip removes addresses and routes, which have been moved to another link, from a link, and returns how
// many addresses it removed. What somebody has added to the link since then stays.
func Strip(name string, moved host.Attachment) (int, error) {
	link, err := get(name)
	if err != nil {
		return 0, err
	}
	have, err := read(link)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, x := range have.Addrs {
		if !slices.ContainsFunc(moved.Addrs, func(m host.LinkAddress) bool { return m.Prefix == x.Prefix }) {
			continue
		}
		n++
		err := netlink.AddrDel(link, &netlink.Addr{IPNet: ipnet(x.Prefix)})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) { // removed together with another one
			return 0, fmt.Errorf("delete address %s from %s: %w", x.Prefix, name, err)
		}
	}
	left, err := read(link) // most routes disappeared with the addresses
	if err != nil {
		return 0, err
	}
	for _, r := range left.Routes {
		if len(r.Hops) > 0 || !contains(moved.Routes, r) {
			continue // shared with other links, or new
		}
		route, err := encodeRoute(r, link.Attrs().Index, nil)
		if err != nil {
			return 0, err
		}
		if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, fmt.Errorf("delete route to %s via %s dev %s: %w", r.Dst, r.Via, name, err)
		}
	}
	return n, nil
}

// DeleteAddresses removes addresses from a link, and restores what disappeared with them: the
// kernel deletes the secondary addresses of a network together with the primary one.
func DeleteAddresses(name string, addrs []netip.Prefix, keep host.Attachment) error {
	link, err := get(name)
	if err != nil {
		return err
	}
	for _, p := range addrs {
		if err := netlink.AddrDel(link, &netlink.Addr{IPNet: ipnet(p)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("delete address %s from %s: %w", p, name, err)
		}
	}
	if _, err := AddAddresses(name, keep); err != nil {
		return err
	}
	_, err = AddRoutes(name, name, keep)
	return err
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
