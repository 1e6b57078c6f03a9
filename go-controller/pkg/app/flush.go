package app

import (
	"context"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
)

// flushTranslated returns a function that deletes connections with stale translations from the kernel, and from the
// bridge's conntrack zone those of addresses that are no longer used here.
func (n *node) flushTranslated() func(context.Context, func(src, to netip.Addr) bool, []netip.Addr) error {
	cfg := n.env.Config
	nodeLocal := noreroute.NodeLocal(cfg.Features.NodeLocalAddresses, nil)
	return func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error {
		count, err := conntrack.FlushTranslated(ctx, cfg.Families(), leaving(stale, n.addresses.Hosts(), nodeLocal))
		if err != nil {
			return err
		}
		if count > 0 {
			klog.V(2).InfoS("Connections with another source address deleted", "count", count)
		}
		return conntrack.FlushOVSSources(ctx, conntrack.DefaultRunDir, uint16(cfg.Default.ConntrackZone), ended)
	}
}

// leaving restricts stale to connections that leave the cluster. Pods call hosts, and what they reach through their own
// node, with the address of that node, whatever egress address they have (noreroute.MarkRules).
func leaving(stale func(src, to netip.Addr) bool, hosts []netip.Addr, nodeLocal []netip.Prefix) func(src, dst, to netip.Addr) bool {
	host := make(map[netip.Addr]bool, len(hosts))
	for _, a := range hosts {
		host[a] = true
	}
	return func(src, dst, to netip.Addr) bool {
		return stale(src, to) && !host[dst] && !slices.ContainsFunc(nodeLocal, func(p netip.Prefix) bool { return p.Contains(dst) })
	}
}
