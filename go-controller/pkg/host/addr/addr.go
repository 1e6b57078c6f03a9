// Package addr is the driver for addresses on host links, the host.Kernel of host.Address.
//
// An address carries no mark of its owner. We own the addresses on links that are entirely ours
// (the management port) and, on links of the host, those that were recorded as ours before they
// were added (in an annotation of the node). Link-local addresses belong to the kernel and are
// never ours.
//
// Callers: the node's management port and the node side of EgressIP, through a host.Set.
package addr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Kernel reads and writes addresses in the network namespace of the caller.
type Kernel struct {
	links    map[string]bool
	recorded func() []netip.Addr
}

var (
	_ host.Kernel[host.Address, host.AddressUse]   = Kernel{}
	_ host.Replacer[host.Address, host.AddressUse] = Kernel{}
)

// New returns a Kernel that owns all addresses on links, and on other links the single addresses
// (/32, /128) that recorded returns. recorded may be nil.
func New(recorded func() []netip.Addr, links ...string) Kernel {
	k := Kernel{links: map[string]bool{}, recorded: recorded}
	for _, l := range links {
		k.links[l] = true
	}
	return k
}

// NewSet returns a Set over k.
func NewSet(k Kernel) *host.Set[host.Address, host.AddressUse] {
	return host.NewSet("addresses", k, func(a, b host.AddressUse) bool { return a == b })
}

// List implements host.Kernel.
func (k Kernel) List(context.Context) (map[host.Address]host.AddressUse, error) {
	ours := map[netip.Prefix]bool{}
	if k.recorded != nil {
		for _, a := range k.recorded() {
			ours[topology.HostPrefix(a)] = true
		}
	}
	links, err := link.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	addrs, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[host.Address]host.AddressUse{}
	for _, a := range addrs {
		key := host.Address{Link: names[a.LinkIndex], Prefix: prefix(a.IPNet)}
		if key.Prefix.Addr().IsLinkLocalUnicast() && key.Prefix.Addr().Is6() {
			continue
		}
		if ours[key.Prefix] || k.links[key.Link] {
			out[key] = host.AddressUse{NotPreferred: a.Flags&unix.IFA_F_DEPRECATED != 0}
		}
	}
	return out, nil
}

// Single returns the single addresses (/32, /128) of all links but the loopback interface, as text. Where there is no
// record, those that we added are among them.
func Single() ([]string, error) {
	links, err := link.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var out []string
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addrs {
			if p := prefix(a.IPNet); p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast() && a.Flags&unix.IFA_F_PERMANENT != 0 { // leases expire
				out = append(out, p.String()+" at "+l.Attrs().Name)
			}
		}
	}
	return out, nil
}

// Add implements host.Kernel. An IPv6 address is usable at once: nobody else can have it, so
// duplicate address detection would only cost a second.
func (k Kernel) Add(_ context.Context, a host.Address, use host.AddressUse) error {
	dev, err := netlink.LinkByName(a.Link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", a.Link, err)
	}
	out := &netlink.Addr{IPNet: ipnet(a.Prefix)}
	if a.Prefix.Addr().Is6() {
		out.Flags = unix.IFA_F_NODAD
	}
	if use.NotPreferred {
		out.ValidLft = math.MaxUint32 // valid forever, but never preferred
	}
	if err := netlink.AddrReplace(dev, out); err != nil {
		return err
	}
	klog.V(2).InfoS("Added address", "link", a.Link, "address", a.Prefix)
	return nil
}

// Replace implements host.Replacer: connections and routes that depend on the address stay. An IPv6 address
// that others have added may still be subject to duplicate address detection, or have failed it: it is
// not in use, and only a new one skips this.
func (k Kernel) Replace(ctx context.Context, a host.Address, old, use host.AddressUse) error {
	tentative, err := isTentative(a)
	if err != nil {
		return err
	}
	if tentative {
		if err := k.Delete(ctx, a, old); err != nil {
			return err
		}
	}
	return k.Add(ctx, a, use)
}

// isTentative reports whether the host cannot use an address on a link yet.
func isTentative(a host.Address) (bool, error) {
	dev, err := netlink.LinkByName(a.Link)
	if err != nil {
		return false, fmt.Errorf("find link %s: %w", a.Link, err)
	}
	addrs, err := link.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(dev, netlink.FAMILY_ALL) })
	if err != nil {
		return false, fmt.Errorf("list addresses of %s: %w", a.Link, err)
	}
	return slices.ContainsFunc(addrs, func(have netlink.Addr) bool {
		return prefix(have.IPNet) == a.Prefix && have.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0
	}), nil
}

// Delete implements host.Kernel.
func (k Kernel) Delete(_ context.Context, a host.Address, _ host.AddressUse) error {
	dev, err := netlink.LinkByName(a.Link)
	if link.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", a.Link, err)
	}
	if err := netlink.AddrDel(dev, &netlink.Addr{IPNet: ipnet(a.Prefix)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	klog.V(2).InfoS("Deleted address", "link", a.Link, "address", a.Prefix)
	return nil
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefix(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}
