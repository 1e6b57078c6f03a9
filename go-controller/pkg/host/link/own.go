package link

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Own returns the names of the links over which the host itself communicates: all but loopback and
// the ends of links to pods and virtual machines, which have no address but a link-local one.
func Own() ([]string, error) {
	links, err := Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addrs, err := Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	addressed := map[int]bool{}
	for _, a := range addrs {
		if a.Scope == unix.RT_SCOPE_UNIVERSE {
			addressed[a.LinkIndex] = true
		}
	}
	var names []string
	for _, l := range links {
		toOthers := slices.Contains([]string{"veth", "tuntap"}, l.Type()) && !addressed[l.Attrs().Index]
		if l.Attrs().Flags&net.FlagLoopback == 0 && !toOthers {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}

// Addrs returns the addresses of all links.
func Addrs() (map[netip.Addr]bool, error) {
	list, err := Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	addrs := make(map[netip.Addr]bool, len(list))
	for _, l := range list {
		if a, ok := netip.AddrFromSlice(l.IP); ok {
			addrs[a.Unmap()] = true
		}
	}
	return addrs, nil
}
