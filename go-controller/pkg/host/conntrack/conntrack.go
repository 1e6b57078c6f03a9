// Package conntrack deletes connection tracking entries whose translation no longer matches the
// rules and rows: the kernel's entries over netlink, and those of the userspace datapath of OVS,
// which has a table of its own, over ovs-vswitchd's socket. With the kernel datapath both are one
// table. Follow only reads.
//
// An empty Filter is refused: nothing here may cut every connection of a host.
//
// Callers: services (removed endpoints), the egress features, app (probes).
package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Filter selects entries. Zero fields match everything; all other fields must match.
type Filter struct {
	Src, Dst           netip.Addr // of the first packet, before translation
	ReplySrc, ReplyDst netip.Addr // of the reply: the translated addresses
	Protocol           uint8      // 6, 17, 132
	DstPort            uint16     // of the first packet; needs Protocol
	Mark               uint32     // kernel only
}

var errEmpty = errors.New("the filter matches everything")

// families returns the families that the filter's addresses allow.
func (f Filter) families() ([]topology.Family, error) {
	if f == (Filter{}) {
		return nil, errEmpty
	}
	if f.DstPort != 0 && f.Protocol == 0 {
		return nil, fmt.Errorf("filter by port %d without a protocol", f.DstPort)
	}
	only := topology.Family(0)
	for _, a := range []netip.Addr{f.Src, f.Dst, f.ReplySrc, f.ReplyDst} {
		if !a.IsValid() {
			continue
		}
		if only != 0 && only != topology.FamilyOf(a) {
			return nil, fmt.Errorf("filter with addresses of both families: %s", a)
		}
		only = topology.FamilyOf(a)
	}
	if only == 0 {
		return topology.Families, nil
	}
	return []topology.Family{only}, nil
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f Filter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	is := func(want netip.Addr, have net.IP) bool {
		if !want.IsValid() {
			return true
		}
		a, _ := netip.AddrFromSlice(have)
		return a.Unmap() == want
	}
	return is(f.Src, flow.Forward.SrcIP) && is(f.Dst, flow.Forward.DstIP) &&
		is(f.ReplySrc, flow.Reverse.SrcIP) && is(f.ReplyDst, flow.Reverse.DstIP) &&
		(f.Protocol == 0 || f.Protocol == flow.Forward.Protocol) &&
		(f.DstPort == 0 || f.DstPort == flow.Forward.DstPort) &&
		(f.Mark == 0 || f.Mark == flow.Mark)
}

// deleteMatching deletes entries of one family.
func deleteMatching(family topology.Family, f netlink.CustomConntrackFilter) (int, error) {
	inet := netlink.InetFamily(netlink.FAMILY_V4)
	if family == topology.IPv6 {
		inet = netlink.FAMILY_V6
	}
	n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, inet, f)
	if err != nil {
		return int(n), fmt.Errorf("flush conntrack of %s: %w", family, err)
	}
	return int(n), nil
}

// FlushKernel deletes matching entries of the kernel in the caller's network namespace and returns
// how many there were.
func FlushKernel(_ context.Context, f Filter) (int, error) {
	families, err := f.families()
	if err != nil {
		return 0, fmt.Errorf("flush conntrack: %w", err)
	}
	total := 0
	for _, family := range families {
		n, err := deleteMatching(family, f)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// FlushKernelAddrs deletes the entries of the kernel, in the caller's network namespace, of
// connections to one of the addresses, or whose source address was translated to it. It returns how
// many there were, and reads the table once per family.
func FlushKernelAddrs(_ context.Context, addrs []netip.Addr) (int, error) {
	total := 0
	for _, f := range topology.Families {
		if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return topology.FamilyOf(a) == f }) {
			continue
		}
		is := func(ip net.IP) bool {
			a, ok := netip.AddrFromSlice(ip)
			return ok && slices.Contains(addrs, a.Unmap())
		}
		n, err := deleteMatching(f, matcher(func(flow *netlink.ConntrackFlow) bool {
			return is(flow.Forward.DstIP) || is(flow.Reverse.DstIP)
		}))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// FlushTranslated deletes the entries of the kernel, in the caller's network namespace, of
// connections whose source translation is stale, and returns how many there were. stale gets the
// source address of the connection, the address that answers it (dst), and the address that this one
// sees instead of the source (to). One call reads the table once per family.
func FlushTranslated(_ context.Context, families []topology.Family, stale func(src, dst, to netip.Addr) bool) (int, error) {
	total := 0
	for _, f := range families {
		inet := netlink.InetFamily(netlink.FAMILY_V4)
		if f == topology.IPv6 {
			inet = netlink.FAMILY_V6
		}
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, inet, translated(stale))
		if err != nil {
			return total, fmt.Errorf("flush translations from conntrack of %s: %w", f, err)
		}
		total += int(n)
	}
	return total, nil
}

// translated matches connections with a stale source translation.
type translated func(src, dst, to netip.Addr) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (stale translated) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	src, ok := netip.AddrFromSlice(flow.Forward.SrcIP)
	to, known := netip.AddrFromSlice(flow.Reverse.DstIP)
	dst, answers := netip.AddrFromSlice(flow.Reverse.SrcIP)
	src, to = src.Unmap(), to.Unmap()
	return ok && known && answers && src != to && stale(src, dst.Unmap(), to)
}
