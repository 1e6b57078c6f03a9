// Package neighbor resolves the MAC addresses of neighbours with the kernel, and sets permanent
// entries for those that the kernel need not resolve.
//
// Callers: pkg/externalroute/node, pkg/cni/node.
package neighbor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
)

const (
	// timeout is how long to wait for an answer.
	timeout = time.Second
	// interval is how often the kernel's table is read.
	interval = 20 * time.Millisecond
	// known are the states in which an entry has a MAC address.
	known = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE |
		netlink.NUD_PERMANENT | netlink.NUD_NOARP
)

// Resolve returns the MAC addresses, formatted as by net.HardwareAddr, of those addresses that are
// on a link of the host and answer within a second. It makes the kernel ask for addresses that it
// does not know.
func Resolve(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]string, error) {
	found := map[netip.Addr]string{}
	missing := map[netip.Addr]int{} // link by address
	for _, a := range addrs {
		link, ok := onLink(a)
		if !ok {
			continue
		}
		missing[a] = link
	}
	if err := look(missing, found); err != nil || len(missing) == 0 {
		return found, err
	}
	var errs []error
	for a, link := range missing {
		// NTF_USE has the effect of a packet to the neighbour: the kernel asks.
		err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link, IP: a.AsSlice(), Flags: netlink.NTF_USE, State: netlink.NUD_NONE})
		if err != nil {
			errs = append(errs, fmt.Errorf("ask for neighbour %s: %w", a, err))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return found, errors.Join(errs...)
		case <-tick.C:
			if err := look(missing, found); err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

// onLink returns the link that an address is on, or false if it is behind a router or unreachable.
func onLink(a netip.Addr) (int, bool) {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil || len(routes) == 0 || len(routes[0].Gw) > 0 {
		return 0, false
	}
	return routes[0].LinkIndex, true
}

// look moves addresses that the kernel has resolved from missing to found.
func look(missing map[netip.Addr]int, found map[netip.Addr]string) error {
	families := map[int]bool{}
	for a := range missing {
		if a.Is4() {
			families[netlink.FAMILY_V4] = true
		} else {
			families[netlink.FAMILY_V6] = true
		}
	}
	for family := range families {
		list, err := listNeighbors(0, family)
		if err != nil {
			return fmt.Errorf("list neighbours: %w", err)
		}
		for _, n := range list {
			a, ok := netip.AddrFromSlice(n.IP)
			a = a.Unmap()
			if link, wanted := missing[a]; !ok || !wanted || link != n.LinkIndex || n.State&known == 0 || len(n.HardwareAddr) == 0 {
				continue
			}
			found[a] = n.HardwareAddr.String()
			delete(missing, a)
		}
	}
	return nil
}

// listNeighbors returns the neighbour entries of a link and family; index 0: of all links.
func listNeighbors(index, family int) ([]netlink.Neigh, error) {
	return link.Dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
}
