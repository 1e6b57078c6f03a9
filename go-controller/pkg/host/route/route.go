// Package route is the driver for routes, the host.Kernel of host.Route.
//
// We own the routes with host.Protocol, in any table. A foreign route to the same destination in
// the same table is taken over.
//
// Callers: the node's gateway and the node side of the egress features, through a host.Set.
package route

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
)

// Kernel reads and writes routes in the network namespace of the caller.
type Kernel struct{}

var (
	_ host.Kernel[host.Route, host.Hop]   = Kernel{}
	_ host.Replacer[host.Route, host.Hop] = Kernel{}
	_ host.Canonical[host.Route]          = Kernel{}
)

// lastMetric is the metric of routes that drop: every other route to the same destination takes
// precedence.
const lastMetric = math.MaxUint32

// NewSet returns the Set of a node's routes.
func NewSet() *host.Set[host.Route, host.Hop] {
	return host.NewSet("routes", Kernel{}, equal)
}

// equal compares hops as the kernel stores them: it chooses the scope of a route without a gateway
// and of every IPv6 route.
func equal(want, have host.Hop) bool {
	if !want.Via.IsValid() || want.Via.Is6() {
		want.Scope = have.Scope
	}
	return want == have
}

// Canonical implements host.Canonical.
func (Kernel) Canonical(r host.Route) host.Route {
	r.Dst = r.Dst.Masked()
	if r.Table == unix.RT_TABLE_MAIN {
		r.Table = 0
	}
	return r
}

// List implements host.Kernel.
func (k Kernel) List(context.Context) (map[host.Route]host.Hop, error) {
	links, err := link.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	routes, err := link.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL,
			&netlink.Route{Protocol: host.Protocol, Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	out := map[host.Route]host.Hop{}
	for _, r := range routes {
		if r.Type == unix.RTN_BLACKHOLE {
			out[k.Canonical(host.Route{Dst: destination(r), Table: r.Table})] = host.Hop{Drop: true}
			continue
		}
		out[k.Canonical(host.Route{Dst: destination(r), Table: r.Table, Link: names[r.LinkIndex]})] = host.Hop{
			Via: link.Gateway(r.Gw, r.Via), Src: addr(r.Src), MTU: r.MTU, Scope: int(r.Scope), OnLink: r.Flags&unix.RTNH_F_ONLINK != 0,
		}
	}
	return out, nil
}

// Add implements host.Kernel.
func (Kernel) Add(_ context.Context, r host.Route, h host.Hop) error {
	route, err := build(r, h)
	if err != nil {
		return err
	}
	err = netlink.RouteAdd(route)
	if errors.Is(err, unix.EEXIST) {
		err = netlink.RouteReplace(route)
	}
	if err != nil {
		return err
	}
	klog.V(2).InfoS("Added route", "route", r, "hop", h)
	return nil
}

// Replace implements host.Replacer.
func (Kernel) Replace(_ context.Context, r host.Route, old, h host.Hop) error {
	route, err := build(r, h)
	if err != nil {
		return err
	}
	if err := netlink.RouteReplace(route); err != nil {
		return err
	}
	klog.V(2).InfoS("Changed route", "route", r, "from", old, "to", h)
	return nil
}

// Delete implements host.Kernel.
func (Kernel) Delete(_ context.Context, r host.Route, h host.Hop) error {
	route, err := build(r, h)
	if link.IsNotFound(err) {
		return nil // the kernel removed the route with its link
	}
	if err != nil {
		return err
	}
	if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	klog.V(2).InfoS("Deleted route", "route", r, "hop", h)
	return nil
}

func build(r host.Route, h host.Hop) (*netlink.Route, error) {
	out := &netlink.Route{
		Dst:   &net.IPNet{IP: r.Dst.Addr().AsSlice(), Mask: net.CIDRMask(r.Dst.Bits(), r.Dst.Addr().BitLen())},
		Table: r.Table, Protocol: host.Protocol, MTU: h.MTU, Scope: netlink.Scope(h.Scope),
	}
	if out.Table == 0 {
		out.Table = unix.RT_TABLE_MAIN
	}
	if h.Drop {
		out.Type, out.Priority = unix.RTN_BLACKHOLE, lastMetric
		return out, nil
	}
	dev, err := netlink.LinkByName(r.Link)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", r.Link, err)
	}
	out.LinkIndex = dev.Attrs().Index
	if h.Via.IsValid() {
		out.Gw, out.Via = link.EncodeGateway(r.Dst, h.Via)
		if h.OnLink {
			out.Flags = unix.RTNH_F_ONLINK
		}
	} else if r.Dst.Addr().Is4() {
		out.Scope = netlink.SCOPE_LINK
	}
	if h.Src.IsValid() {
		out.Src = h.Src.AsSlice()
	}
	return out, nil
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func destination(r netlink.Route) netip.Prefix {
	if r.Dst == nil {
		if r.Family == netlink.FAMILY_V6 {
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(addr(r.Dst.IP), bits)
}
