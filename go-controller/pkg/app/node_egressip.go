package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	egressipnode "github.com/ovnkube/ovnkube/go-controller/pkg/egressip/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/announce"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/attachment"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/openflow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/sb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// egressIPs adds the node side of EgressIPs and returns the informers to start.
func (n *node) egressIPs() (starter, error) {
	client, factory := n.ips.client, n.ips.factory
	integration := openflow.New(topology.IntegrationBridge, openflow.DefaultRunDir)
	c, err := egressipnode.New(egressipnode.Deps{
		Node:      n.name,
		EgressIPs: factory.EgressIP().V1().EgressIPs(),
		Nodes:     n.self,
		Client:    client,
		Kube:      n.env.Kube,
		Flows:     n.flows,
		Left:      n.leftOnBridge,
		Forget:    forget,
		Addresses: n.addresses,
		NodeLocal: noreroute.NodeLocal(n.env.Config.Features.NodeLocalAddresses, nil),
		VLAN:      n.env.Config.Gateway.VLANID,
		Kernel: egressipnode.Kernel{
			Addrs: n.addrs, Routes: n.routes, IPRules: n.ipRules, Rules: iprule.Kernel{}.List, Settings: n.settings, Chains: n.chains,
			Networks: attachment.Networks, Watch: link.Watch, Flush: n.flushTranslated(),
		},
		FollowTranslations: integration.FollowTranslations,
		FlushTranslations: func(ctx context.Context, stale func() func(src, dst, to netip.Addr) bool) (int, error) {
			return conntrack.FlushGatewayTranslations(ctx, conntrack.DefaultRunDir, stale)
		},
		OnApplied:           n.switches.OnFlowsInstalled,
		Record:              n.record,
		Pods:                func() informers.SharedInformerFactory { return kube.NewInformers(n.env.Kube) },
		Ports:               sb.NewPorts(databaseConfig(n.env.Config.OVNSouth), ""),
		Cluster:             n.env.Config.Default.ClusterPrefixes(),
		Announcer:           &announce.Announcer{},
		Ready:               n.gateway.Ready(),
		ReachabilityTimeout: n.env.Config.Features.ReachabilityTotalTimeout,
	})
	if err != nil {
		return nil, err
	}
	n.runners["egress IPs"], n.handOver = c, c.HandOver
	n.addContributor("every EgressIP to be tried once", c.Attempted(), c.Synced())
	return factory, nil
}

// leftOnBridge returns the egress addresses in flows that an earlier run has left on the external
// bridge.
func (n *node) leftOnBridge(ctx context.Context) (held, suppressed []netip.Addr, err error) {
	ids, err := n.switches.System(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the bridge mappings: %w", err)
	}
	name := gateway.MappedBridge(ids[gateway.IDMappings], topology.PhysicalNetwork)
	if name == "" {
		return nil, nil, nil // the node is new
	}
	dump, err := openflow.New(name, openflow.DefaultRunDir).Dump(ctx)
	if err != nil {
		return nil, nil, err
	}
	held, suppressed = bridge.EgressAddrs(dump)
	return held, suppressed, nil
}

// forget deletes, in the kernel and in the datapath, connections that left with one of the
// addresses, or were opened to it.
func forget(ctx context.Context, addrs []netip.Addr) error {
	count, err := conntrack.FlushKernelAddrs(ctx, addrs)
	n, errOVS := conntrack.FlushOVSAddrs(ctx, conntrack.DefaultRunDir, addrs)
	if count += n; count > 0 {
		klog.V(2).InfoS("Connections with egress addresses deleted", "addresses", addrs, "count", count)
	}
	return errors.Join(err, errOVS)
}
