package node

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// configure gives the pod's end its addresses and default routes. slow says that
// a userspace datapath reads the other end.
func configure(r cni.Request, network topology.PodNetwork, slow bool) error {
	err := link.Inside(r.Netns, func() error {
		if slow {
			if err := link.OffloadsOff(r.IfName); err != nil {
				return err
			}
		}
		if err := settings(r.IfName, network); err != nil {
			return err
		}
		dev, err := netlink.LinkByName(r.IfName)
		if err != nil {
			return fmt.Errorf("find %s: %w", r.IfName, err)
		}
		for _, p := range network.Addrs {
			addr := &netlink.Addr{IPNet: cni.IPNet(p)}
			if p.Addr().Is6() {
				addr.Flags = unix.IFA_F_NODAD // OVN gives an address to one pod only
			}
			if err := netlink.AddrReplace(dev, addr); err != nil {
				return fmt.Errorf("add address %s: %w", p, err)
			}
		}
		if err := link.Up(r.IfName); err != nil {
			return err
		}
		for _, gw := range network.Gateways {
			route := &netlink.Route{
				LinkIndex: dev.Attrs().Index, Gw: gw.AsSlice(), Dst: cni.IPNet(cni.DefaultRoute(topology.FamilyOf(gw))),
			}
			if err := netlink.RouteReplace(route); err != nil {
				return fmt.Errorf("add default route via %s: %w", gw, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("configure %s in %s: %w", r.IfName, r.Netns, err)
	}
	return nil
}

// settings switches IPv6 on where the pod has it, whatever the runtime left, and
// waiting for duplicates and router advertisements off: OVN's router sends none.
func settings(name string, network topology.PodNetwork) error {
	has6 := slices.ContainsFunc(network.Addrs, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if !has6 || !link.HasIPv6() {
		return nil
	}
	for _, s := range [][2]string{{"disable_ipv6", "0"}, {"accept_dad", "0"}, {"accept_ra", "0"}} {
		if err := link.SetLinkSysctl(topology.IPv6, name, s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// inspect compares the pod's end with what it should be.
func inspect(r cni.Request, mac string, addrs []netip.Prefix, gateways []netip.Addr) error {
	return link.Inside(r.Netns, func() error {
		dev, err := netlink.LinkByName(r.IfName)
		if err != nil {
			return fmt.Errorf("find %s: %w", r.IfName, err)
		}
		if have := dev.Attrs().HardwareAddr.String(); mac != "" && have != mac {
			return fmt.Errorf("%s has MAC address %s, not %s", r.IfName, have, mac)
		}
		if dev.Attrs().RawFlags&unix.IFF_UP == 0 {
			return fmt.Errorf("%s is down", r.IfName)
		}
		have, err := netlink.AddrList(dev, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", r.IfName, err)
		}
		for _, p := range addrs {
			if !slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IPNet.String() == cni.IPNet(p).String() }) {
				return fmt.Errorf("%s lacks address %s", r.IfName, p)
			}
		}
		routes, err := netlink.RouteList(dev, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list routes of %s: %w", r.IfName, err)
		}
		for _, gw := range gateways {
			if !slices.ContainsFunc(routes, func(x netlink.Route) bool { return x.Gw.Equal(gw.AsSlice()) }) {
				return fmt.Errorf("%s lacks the default route via %s", r.IfName, gw)
			}
		}
		return nil
	})
}
