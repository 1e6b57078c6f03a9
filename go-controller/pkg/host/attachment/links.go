package attachment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoDefaultRoute says that the main table has no default route.
var ErrNoDefaultRoute = errors.New("the host has no default route")

// DefaultLink returns the link of the default route with the lowest metric, IPv4
// first.
func DefaultLink() (string, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
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

// Addresses returns the addresses of all links that are up, by link.
func Addresses() (map[string][]netip.Prefix, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		if l.Attrs().Flags&net.FlagUp != 0 {
			names[l.Attrs().Index] = l.Attrs().Name
		}
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[string][]netip.Prefix{}
	for _, a := range addrs {
		if name, ok := names[a.LinkIndex]; ok {
			out[name] = append(out[name], prefixOf(a.IPNet))
		}
	}
	return out, nil
}
