// Package iprule is the driver for ip rules, the host.Kernel of host.IPRule.
//
// We own the rules with host.Protocol whose priority is one of the documented ones
// (topology.RuleBeforeVRF, RuleInside, RuleEgressServiceNetwork, RulePodToNode, RuleEgressIP).
//
// A RulePodToNode rule with a source address exists only together with a RuleEgressIP rule with the
// same source, which it overrides: it records which other feature serves a pod.
//
// Callers: the node side of the egress features, through a host.Set.
package iprule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// priorities are the priorities of our rules.
var priorities = map[int]bool{
	topology.RuleBeforeVRF:            true,
	topology.RuleInside:               true,
	topology.RuleEgressServiceNetwork: true,
	topology.RulePodToNode:            true,
	topology.RuleEgressIP:             true,
}

// Kernel reads and writes ip rules in the network namespace of the caller.
type Kernel struct{}

var (
	_ host.Kernel[host.IPRule, struct{}] = Kernel{}
	_ host.Overlapper                    = Kernel{}
	_ host.Exclusive[host.IPRule]        = Kernel{}
)

// NewSet returns the Set of a node's ip rules.
func NewSet() *host.Set[host.IPRule, struct{}] {
	return host.NewSet("ip rules", Kernel{}, func(struct{}, struct{}) bool { return true })
}

// MayOverlap implements host.Overlapper: of two rules with the same priority, the older one takes
// precedence until it is deleted.
func (Kernel) MayOverlap() bool { return true }

// Match implements host.Exclusive: of two rules that differ only in their tables, the older one is used, even if its
// table now drops everything, or leads to a link that packets must not take any more.
func (Kernel) Match(r host.IPRule) host.IPRule {
	r.Table = 0
	return r
}

// protocols are the numbers of the protocols that rules can match.
var protocols = map[string]int{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// Canonical implements host.Canonical.
func (Kernel) Canonical(r host.IPRule) host.IPRule {
	r.Src, r.Dst = canonical(r.Src), canonical(r.Dst)
	if r.Table == 0 {
		r.Table = unix.RT_TABLE_MAIN
	}
	return r
}

// canonical returns a prefix as the kernel reports it; a prefix of all addresses becomes the zero
// prefix.
func canonical(p netip.Prefix) netip.Prefix {
	if !p.IsValid() || p.Bits() == 0 {
		return netip.Prefix{}
	}
	return p.Masked()
}

// Reduce implements host.Reducer.
func (Kernel) Reduce(union map[host.IPRule]struct{}) {
	egressIP := map[netip.Prefix]bool{}
	for r := range union {
		if r.Priority == topology.RuleEgressIP {
			egressIP[r.Src] = true
		}
	}
	for r := range union {
		if r.Priority == topology.RulePodToNode && r.Src.IsValid() && !egressIP[r.Src] {
			delete(union, r)
		}
	}
}

// List implements host.Kernel.
func (Kernel) List(context.Context) (map[host.IPRule]struct{}, error) {
	out := map[host.IPRule]struct{}{}
	for _, f := range topology.Families {
		rules, err := link.Dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family(f)) })
		if err != nil {
			return nil, fmt.Errorf("list ip rules of %s: %w", f, err)
		}
		for _, r := range rules {
			if r.Protocol != host.Protocol || !priorities[r.Priority] {
				continue
			}
			key := host.IPRule{Family: f, Priority: r.Priority, Src: prefix(r.Src), Dst: prefix(r.Dst), Mark: r.Mark, Table: r.Table}
			for name, number := range protocols {
				if r.IPProto == number {
					key.Protocol = name
				}
			}
			if r.Sport != nil {
				key.SrcPort = r.Sport.Start
			}
			out[key] = struct{}{}
		}
	}
	return out, nil
}

// Add implements host.Kernel.
func (Kernel) Add(_ context.Context, r host.IPRule, _ struct{}) error {
	if !priorities[r.Priority] {
		return fmt.Errorf("priority %d is not one of ours", r.Priority)
	}
	if err := netlink.RuleAdd(rule(r)); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	klog.V(2).InfoS("Added ip rule", "rule", r)
	return nil
}

// Delete implements host.Kernel.
func (Kernel) Delete(_ context.Context, r host.IPRule, _ struct{}) error {
	if err := netlink.RuleDel(rule(r)); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	klog.V(2).InfoS("Deleted ip rule", "rule", r)
	return nil
}

func family(f topology.Family) int {
	if f == topology.IPv4 {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func rule(r host.IPRule) *netlink.Rule {
	out := netlink.NewRule()
	out.Family, out.Priority, out.Table, out.Mark = family(r.Family), r.Priority, r.Table, r.Mark
	out.Protocol = host.Protocol
	out.Src, out.Dst, out.IPProto = ipNet(r.Src), ipNet(r.Dst), protocols[r.Protocol]
	if r.SrcPort != 0 {
		out.Sport = netlink.NewRulePortRange(r.SrcPort, r.SrcPort)
	}
	return out
}

// prefix decodes an address match; nil matches all.
func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr, bits)
}

func ipNet(p netip.Prefix) *net.IPNet {
	if !p.IsValid() {
		return nil
	}
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
