package route

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
)

// NextHops returns the gateways of all default routes, whoever made them.
func NextHops() ([]netip.Addr, error) {
	routes, err := link.Dump(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var hops []netip.Addr
	note := func(a netip.Addr) {
		// A link-local address would need a zone, and is another address of the same router.
		if a.IsValid() && !a.IsLinkLocalUnicast() && !slices.Contains(hops, a) {
			hops = append(hops, a)
		}
	}
	for _, r := range routes {
		if destination(r).Bits() != 0 {
			continue
		}
		note(link.Gateway(r.Gw, r.Via))
		for _, path := range r.MultiPath {
			note(link.Gateway(path.Gw, path.Via))
		}
	}
	return hops, nil
}
