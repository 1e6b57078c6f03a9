package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// configureNetwork configures the machine's network as a distribution does at boot.
func configureNetwork(s Spec) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	for _, b := range s.Bridges {
		if err := makeBridge(b); err != nil {
			return err
		}
	}
	// Before addresses, because sysctls determine whether addresses are checked for
	// duplicates before they can be used.
	if err := writeSysctls(s.Sysctls); err != nil {
		return err
	}
	for _, u := range s.Uplinks {
		if err := configureUplink(u); err != nil {
			return err
		}
	}
	return nil
}

// makeBridge creates a switch without the forward delay and multicast snooping of a
// real one, which would only cause delays.
func makeBridge(b Bridge) error {
	snooping := false
	link := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
	link.Name = b.Name
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("make bridge %s: %w", b.Name, err)
	}
	if err := addAddresses(link, b.Addresses); err != nil {
		return err
	}
	if b.Frames == FramesFinished {
		if err := disableOffloads(b.Name); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring bridge %s up: %w", b.Name, err)
	}
	return nil
}

func configureUplink(u Uplink) error {
	link, err := netlink.LinkByName(u.Name)
	if err != nil {
		return fmt.Errorf("find uplink %s: %w", u.Name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring uplink up: %w", err)
	}
	if err := addAddresses(link, u.Addresses); err != nil {
		return err
	}
	for _, gateway := range u.Gateways {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IP(gateway.AsSlice())}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("set default gateway %s: %w", gateway, err)
		}
	}
	return nil
}

func addAddresses(link netlink.Link, addresses []netip.Prefix) error {
	for _, a := range addresses {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IP(a.Addr().AsSlice()), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	return nil
}

// writeSysctls writes those sysctls that exist: a kernel built without a feature
// lacks its settings.
func writeSysctls(list []Sysctl) error {
	for _, s := range list {
		err := os.WriteFile(filepath.Join("/proc/sys", s.Key), []byte(s.Value), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s: %w", s.Key, err)
		}
	}
	return nil
}

// QuietSysctls avoid unwanted behavior of a machine's network stack: no redirects, which
// machines on the wire would remember, no reverse path filter, and addresses
// that can be used at once. Keys for interfaces that do not exist are skipped.
func QuietSysctls(interfaces ...string) []Sysctl {
	var list []Sysctl
	for _, name := range append([]string{"all", "default"}, interfaces...) {
		for _, setting := range []Sysctl{
			{"net/ipv4/conf/%s/accept_redirects", "0"},
			{"net/ipv4/conf/%s/send_redirects", "0"},
			{"net/ipv4/conf/%s/rp_filter", "0"},
			{"net/ipv6/conf/%s/accept_redirects", "0"},
			{"net/ipv6/conf/%s/accept_dad", "0"},
			{"net/ipv6/conf/%s/accept_ra", "0"},
			{"net/ipv6/conf/%s/router_solicitations", "0"},
		} {
			list = append(list, Sysctl{Key: fmt.Sprintf(setting.Key, name), Value: setting.Value})
		}
	}
	return list
}

// ForwardSysctls turn a machine into a router.
func ForwardSysctls() []Sysctl {
	return []Sysctl{{"net/ipv4/ip_forward", "1"}, {"net/ipv6/conf/all/forwarding", "1"}}
}
