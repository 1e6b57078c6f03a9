package app

import (
	"context"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// flushTranslated returns a function that deletes connections with stale translations from the kernel, and from the
// bridge's conntrack zone those of addresses that are no longer used here.
func (n *node) flushTranslated() func(context.Context, func(src, to netip.Addr) bool, []netip.Addr) error {
	cfg := n.env.Config
	nodeLocal := noreroute.NodeLocal(cfg.Features.NodeLocalAddresses, nil)
	return func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error {
		count, err := conntrack.FlushTranslated(ctx, cfg.Families(), leaving(stale, n.addresses.Hosts(), nodeLocal, n.addresses.Ranges))
		if err != nil {
			return err
		}
		if count > 0 {
			klog.V(2).InfoS("Connections with another source address deleted", "count", count)
		}
		return conntrack.FlushOVSSources(ctx, conntrack.DefaultRunDir, uint16(cfg.Default.ConntrackZone), ended)
	}
}

// flushLed returns a function that deletes the connections of pods that leave the cluster by another link than the one
// whose address they have.
func (n *node) flushLed() func(context.Context, map[netip.Addr]bool) error {
	cfg := n.env.Config
	nodeLocal := noreroute.NodeLocal(cfg.Features.NodeLocalAddresses, nil)
	return func(ctx context.Context, pods map[netip.Addr]bool) error {
		uplink, err := n.externalBridge(false)
		if err != nil {
			return nil //nolint:nilerr // nobody knows which addresses OVN gives
		}
		bridges := []string{uplink}
		if second, err := n.externalBridge(true); err == nil {
			bridges = append(bridges, second)
		}
		leaves := leaves(n.addresses.Hosts(), nodeLocal, n.addresses.Ranges)
		count, err := conntrack.FlushFormerLinks(ctx, topology.ManagementPort, bridges, cfg.Families(), func(src, dst netip.Addr) bool { return pods[src] && leaves(dst) })
		if count > 0 {
			klog.V(2).InfoS("Connections with the address of another link deleted", "count", count)
		}
		return err
	}
}

// leaving restricts stale to connections that leave the cluster.
func leaving(stale func(src, to netip.Addr) bool, hosts []netip.Addr, nodeLocal []netip.Prefix, cluster reserved.Ranges,
) func(src, dst, to netip.Addr) bool {
	leaves := leaves(hosts, nodeLocal, cluster)
	return func(src, dst, to netip.Addr) bool { return stale(src, to) && leaves(dst) }
}

// leaves returns a function that reports whether connections that an address answers leave the cluster. Pods call hosts, and what they
// reach through their own node, with the address of that node, whatever egress address they have (noreroute.MarkRules). What they
// reach at a host port or a node port of their own node is answered by a pod or a Service.
func leaves(hosts []netip.Addr, nodeLocal []netip.Prefix, cluster reserved.Ranges) func(dst netip.Addr) bool {
	host := make(map[netip.Addr]bool, len(hosts))
	for _, a := range hosts {
		host[a] = true
	}
	inside := slices.Concat(nodeLocal, cluster.Pods, cluster.Services)
	return func(dst netip.Addr) bool {
		return !host[dst] && !slices.ContainsFunc(inside, func(p netip.Prefix) bool { return p.Contains(dst) })
	}
}
