package conntrack

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FlushFormerLinks deletes the entries of the kernel of connections of some sources that come in by
// a link and have the address of another link of the host than those by which it routes them, and
// returns how many there were. of selects connections by source and answering address. Connections
// stay whose address may be right: one of the bridges, which OVN's routers give as well, or of
// several links, and those whose route is not known, or is by a link without an address.
func FlushFormerLinks(_ context.Context, in string, bridges []string, families []topology.Family, of func(src, dst netip.Addr) bool) (int, error) {
	host, err := readLinks(in, bridges)
	if err != nil {
		return 0, fmt.Errorf("flush connections of former links: %w", err)
	}
	total := 0
	for _, f := range families {
		hops := map[[2]netip.Addr][]int{}
		n, err := deleteMatching(f, matcher(func(flow *netlink.ConntrackFlow) bool {
			src, dst := addrOf(flow.Forward.SrcIP), addrOf(flow.Reverse.SrcIP)
			former := host.with[addrOf(flow.Reverse.DstIP)]
			if former == 0 || !of(src, dst) {
				return false
			}
			pair := [2]netip.Addr{src, dst}
			if _, known := hops[pair]; !known {
				hops[pair] = host.hops(src, dst)
			}
			return len(hops[pair]) > 0 && !slices.Contains(hops[pair], former)
		}))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// links are the links of a host by which connections leave.
type links struct {
	in string
	// with are the links by their addresses, or 0 if an address does not tell the link.
	with map[netip.Addr]int
	// masquerade are the links that have an address to masquerade with, by family. Otherwise the kernel uses
	// that of another link.
	masquerade map[topology.Family]map[int]bool
}

func readLinks(in string, bridges []string) (links, error) {
	l := links{in: in, with: map[netip.Addr]int{}, masquerade: map[topology.Family]map[int]bool{topology.IPv4: {}, topology.IPv6: {}}}
	all, err := link.Dump(netlink.LinkList)
	if err != nil {
		return l, fmt.Errorf("list links: %w", err)
	}
	addrs, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return l, fmt.Errorf("list addresses: %w", err)
	}
	outward, bridge := map[int]bool{}, map[int]bool{}
	for _, dev := range all {
		a := dev.Attrs()
		// An administrator may translate to an address of a link by which nothing leaves.
		outward[a.Index] = a.Name != in && a.Flags&net.FlagLoopback == 0 && !slices.Contains([]string{"dummy", "vrf"}, dev.Type())
		bridge[a.Index] = slices.Contains(bridges, a.Name)
	}
	for _, each := range addrs {
		a := addrOf(each.IP)
		_, shared := l.with[a]
		l.with[a] = each.LinkIndex
		if shared || a.IsLinkLocalUnicast() || !outward[each.LinkIndex] || bridge[each.LinkIndex] {
			l.with[a] = 0
		}
		if outward[each.LinkIndex] && each.Scope == unix.RT_SCOPE_UNIVERSE && each.Flags&(unix.IFA_F_DEPRECATED|unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
			l.masquerade[topology.FamilyOf(a)][each.LinkIndex] = true
		}
	}
	return l, nil
}

// hops returns the links of all next hops of a route, or none if it is not known with which addresses
// the kernel masquerades there.
func (l links) hops(src, dst netip.Addr) []int {
	// Without FIBMatch the kernel chooses one of several next hops, which need not be that of a connection.
	routes, err := netlink.RouteGetWithOptions(dst.AsSlice(), &netlink.RouteGetOptions{Iif: l.in, SrcAddr: src.AsSlice(), FIBMatch: true})
	if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_UNICAST {
		return nil
	}
	hops := []int{routes[0].LinkIndex}
	if several := routes[0].MultiPath; len(several) > 0 {
		hops = nil
		for _, h := range several {
			hops = append(hops, h.LinkIndex)
		}
	}
	if slices.ContainsFunc(hops, func(dev int) bool { return !l.masquerade[topology.FamilyOf(dst)][dev] }) {
		return nil
	}
	return hops
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
