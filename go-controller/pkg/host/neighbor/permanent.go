package neighbor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// SetPermanent makes the permanent entries of a link exactly these MAC addresses, by address: the
// kernel does not check whether such neighbours are reachable, and does not forget them. A link
// that does not exist has none.
func SetPermanent(link string, want map[netip.Addr]string) error {
	dev, err := netlink.LinkByName(link)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}
	list, err := listNeighbors(dev.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list neighbours on %s: %w", link, err)
	}
	var errs []error
	have := map[netip.Addr]string{}
	for _, n := range list {
		a, ok := netip.AddrFromSlice(n.IP)
		if !ok || n.State&netlink.NUD_PERMANENT == 0 {
			continue
		}
		a = a.Unmap()
		have[a] = n.HardwareAddr.String()
		if _, ok := want[a]; !ok {
			if err := netlink.NeighDel(&n); err != nil {
				errs = append(errs, fmt.Errorf("remove neighbour %s on %s: %w", a, link, err))
			}
		}
	}
	for a, mac := range want {
		if have[a] == mac {
			continue
		}
		hw, err := net.ParseMAC(mac)
		if err == nil {
			err = netlink.NeighSet(&netlink.Neigh{LinkIndex: dev.Attrs().Index, IP: a.AsSlice(), HardwareAddr: hw, State: netlink.NUD_PERMANENT})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("set neighbour %s on %s: %w", a, link, err))
		}
	}
	return errors.Join(errs...)
}
