// Package sandbox is the driver for the pod's end of a veth pair: its addresses, default routes and
// kernel parameters, inside the network namespace of the pod's sandbox.
//
// Configure is idempotent; it adds what is missing and removes nothing.
//
// Callers: the CNI server.
package sandbox

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Interface is the desired state of a pod's interface.
type Interface struct {
	Netns    string // path of the network namespace
	Name     string // e.g. eth0
	MAC      string // checked, not set; empty: any
	Addrs    []netip.Prefix
	Gateways []netip.Addr // of the default routes, one per family
	// Raw means that a userspace datapath reads the frames that the pod sends, so they must be
	// complete.
	Raw bool
}

// Configure gives an existing interface its addresses and default routes and
// sets it up.
func Configure(i Interface) error {
	err := link.Inside(i.Netns, func() error {
		if i.Raw {
			if err := link.OffloadsOff(i.Name); err != nil {
				return err
			}
		}
		if err := i.settings(); err != nil {
			return err
		}
		dev, err := netlink.LinkByName(i.Name)
		if err != nil {
			return fmt.Errorf("find link: %w", err)
		}
		for _, p := range i.Addrs {
			addr := &netlink.Addr{IPNet: ipnet(p)}
			if p.Addr().Is6() {
				addr.Flags = unix.IFA_F_NODAD // OVN gives an address to one pod only
			}
			if err := netlink.AddrReplace(dev, addr); err != nil {
				return fmt.Errorf("add address %s: %w", p, err)
			}
		}
		if _, err := link.Up(i.Name); err != nil {
			return err
		}
		for _, gw := range i.Gateways {
			route := &netlink.Route{LinkIndex: dev.Attrs().Index, Gw: gw.AsSlice(), Dst: everywhere(gw)}
			if err := netlink.RouteReplace(route); err != nil {
				return fmt.Errorf("add default route via %s: %w", gw, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("configure %s in %s: %w", i.Name, i.Netns, err)
	}
	return nil
}

// settings enables IPv6 if the pod has it, whatever the runtime left, and disables duplicate
// address detection and router advertisements: OVN's router sends none.
func (i Interface) settings() error {
	has6 := slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if !has6 || !link.HasIPv6() {
		return nil
	}
	for _, s := range [][2]string{{"disable_ipv6", "0"}, {"accept_dad", "0"}, {"accept_ra", "0"}} {
		if err := link.SetLinkSysctl(topology.IPv6, i.Name, s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error that names the first thing that is not as desired.
func Check(i Interface) error {
	return link.Inside(i.Netns, func() error {
		dev, err := netlink.LinkByName(i.Name)
		if err != nil {
			return fmt.Errorf("find %s: %w", i.Name, err)
		}
		if have := dev.Attrs().HardwareAddr.String(); i.MAC != "" && have != i.MAC {
			return fmt.Errorf("%s has MAC address %s, not %s", i.Name, have, i.MAC)
		}
		if dev.Attrs().Flags&net.FlagUp == 0 {
			return fmt.Errorf("%s is down", i.Name)
		}
		have, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(dev, netlink.FAMILY_ALL) })
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", i.Name, err)
		}
		for _, p := range i.Addrs {
			if !slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IPNet.String() == ipnet(p).String() }) {
				return fmt.Errorf("%s lacks address %s", i.Name, p)
			}
		}
		routes, err := link.Dump(func() ([]netlink.Route, error) { return netlink.RouteList(dev, netlink.FAMILY_ALL) })
		if err != nil {
			return fmt.Errorf("list routes of %s: %w", i.Name, err)
		}
		for _, gw := range i.Gateways {
			isDefaultRoute := func(r netlink.Route) bool {
				return r.Gw.Equal(gw.AsSlice()) && (r.Dst == nil || r.Dst.String() == everywhere(gw).String())
			}
			if !slices.ContainsFunc(routes, isDefaultRoute) {
				return fmt.Errorf("%s lacks the default route via %s", i.Name, gw)
			}
		}
		return nil
	})
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// everywhere returns the destination of the default route in the family of gw.
func everywhere(gw netip.Addr) *net.IPNet {
	zero := netip.IPv6Unspecified()
	if gw.Is4() {
		zero = netip.IPv4Unspecified()
	}
	return ipnet(netip.PrefixFrom(zero, 0))
}
