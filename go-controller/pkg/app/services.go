package app

import (
	"context"
	"net/netip"
	"slices"

	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	servicemaster "github.com/ovnkube/ovnkube/go-controller/pkg/service/master"
	servicenode "github.com/ovnkube/ovnkube/go-controller/pkg/service/node"
)

// services adds the master side of Services.
func (m *master) services(core informers.SharedInformerFactory, egress ...*noreroute.PodSet) error {
	c, err := servicemaster.New(servicemaster.Deps{
		Services:       core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(),
		Nodes:          core.Core().V1().Nodes(),
		Pods:           core.Core().V1().Pods(),
		Writer:         m.writer,
		Egress:         slices.DeleteFunc(egress, func(p *noreroute.PodSet) bool { return p == nil }),
		Config:         serviceConfig(m.env.Config),
	})
	m.runners["services"] = c
	return err
}

// services adds the node side of Services. self has this node.
func (n *node) services(core, self informers.SharedInformerFactory, switches ovs.Client) error {
	c, err := servicenode.New(servicenode.Deps{
		Node:           n.name,
		Services:       core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(),
		Nodes:          self.Core().V1().Nodes(),
		Chains:         n.chains,
		Routes:         n.routes,
		Flows:          n.flows,
		FlushUDP: func(ctx context.Context, stale func(service.Entry) bool) (int, error) {
			return conntrack.FlushStaleUDP(ctx, conntrack.DefaultRunDir, func(client netip.Addr, to, from netip.AddrPort, own bool) bool {
				return stale(service.Entry{Client: client, To: to, From: from, Own: own})
			})
		},
		OnInForce: switches.OnInForce,
		Config:    serviceConfig(n.env.Config),
		Marks:     bridge.DefaultMarks(n.env.Config.Default.ConntrackZone),
	})
	if err != nil {
		return err
	}
	n.runners["services"] = c
	n.spoken = append(n.spoken, c.Seeded())
	return nil
}

// serviceConfig is the part of the configuration that Services need.
func serviceConfig(cfg config.Config) service.Config {
	c := service.Config{
		Cluster:   cfg.Default.ClusterPrefixes(),
		Services:  cfg.Kubernetes.ServiceCIDRs,
		Join:      joinSubnets(cfg),
		NodePorts: cfg.Gateway.NodePort,
		Steered:   cfg.Features.EgressIP || cfg.Features.EgressService,
	}
	for _, f := range cfg.Families() {
		c.Masquerade = append(c.Masquerade, cfg.Gateway.MasqueradeSubnet(f))
	}
	return c
}
