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

// ErrNoDefaultRoute is returned if the main table has no default route.
var ErrNoDefaultRoute = errors.New("the host has no default route")

// listAddrs returns the addresses of a link, or of all links if it is nil.
func listAddrs(of netlink.Link) ([]netlink.Addr, error) {
	return link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(of, netlink.FAMILY_ALL) })
}

// listRoutes returns the routes of a family that equal filter in the fields given by mask.
func listRoutes(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return link.Dump(func() ([]netlink.Route, error) { return netlink.RouteListFiltered(family, filter, mask) })
}

// DefaultLink returns the link of the default route with the lowest metric, IPv4
// first.
func DefaultLink() (string, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := listRoutes(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return "", fmt.Errorf("list routes: %w", err)
		}
		best, metric := 0, 0
		for _, r := range routes {
			index := r.LinkIndex
			if len(r.MultiPath) > 0 {
				index = r.MultiPath[0].LinkIndex
			}
			if destination(r).Bits() == 0 && index != 0 && r.Type == unix.RTN_UNICAST && (best == 0 || r.Priority < metric) {
				best, metric = index, r.Priority
			}
		}
		if best != 0 {
			l, err := netlink.LinkByIndex(best)
			if err != nil {
				return "", fmt.Errorf("find the link of the default route: %w", err)
			}
			return l.Attrs().Name, nil
		}
	}
	return "", ErrNoDefaultRoute
}

// Networks returns the links that are up, with the addresses at which others can reach them and the
// routes of the main table that go through them.
func Networks() ([]host.Network, error) {
	links, err := link.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addrs, err := listAddrs(nil)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := listRoutes(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var out []host.Network
	for _, l := range links {
		if !usable(l.Attrs()) {
			continue
		}
		n := host.Network{Link: l.Attrs().Name, Index: l.Attrs().Index}
		for _, a := range addrs {
			if p := prefixOf(a.IPNet); a.LinkIndex == n.Index && a.Scope == int(netlink.SCOPE_UNIVERSE) && !p.Addr().IsLinkLocalUnicast() {
				n.Addrs = append(n.Addrs, p)
			}
		}
		for _, r := range routes {
			if route, ok := decodeRoute(r, n.Index, names); ok {
				n.Routes = append(n.Routes, route)
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// Has reports whether any link has an address, up or down, the loopback included.
func Has(addr netip.Addr) (bool, error) {
	addrs, err := listAddrs(nil)
	if err != nil {
		return false, fmt.Errorf("list addresses: %w", err)
	}
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return prefixOf(a.IPNet).Addr() == addr }), nil
}

// usable reports whether a link is up and has not lost its carrier.
func usable(a *netlink.LinkAttrs) bool {
	return a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperDown && a.OperState != netlink.OperLowerLayerDown
}

// Addresses returns the addresses of all links that are up, by link.
func Addresses() (map[string][]netip.Prefix, error) {
	networks, err := Networks()
	if err != nil {
		return nil, err
	}
	out := map[string][]netip.Prefix{}
	for _, n := range networks {
		if len(n.Addrs) > 0 {
			out[n.Link] = n.Addrs
		}
	}
	return out, nil
}
