package app

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	externalroutemaster "github.com/ovnkube/ovnkube/go-controller/pkg/externalroute/master"
	externalroutenode "github.com/ovnkube/ovnkube/go-controller/pkg/externalroute/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/informers/externalversions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/neighbor"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	podmaster "github.com/ovnkube/ovnkube/go-controller/pkg/pod/master"
)

// externalGateways adds the master side of external gateways and returns the informers to start.
// pods assigns the pods' addresses. routed gets the pods with gateways, rerouted are the pods that other egress features steer. If
// external gateways are not enabled, their rows are removed.
func (m *master) externalGateways(
	core informers.SharedInformerFactory, pods *podmaster.Controller, routed *noreroute.PodSet, rerouted ...*noreroute.PodSet,
) ([]starter, error) {
	routes, err := versioned.NewForConfigAndClient(m.env.REST, m.env.HTTP)
	if err != nil {
		return nil, fmt.Errorf("make the client of external gateways: %w", err)
	}
	if !m.env.Config.Features.MultiExternalGateway {
		m.runners["external gateways"] = &featureCleanup{feature: externalroute.Feature, writer: m.writer,
			retire: func(ctx context.Context) error { return externalroutemaster.Retire(ctx, m.env.Kube, routes) }}
		return nil, nil
	}
	factory := externalversions.NewSharedInformerFactoryWithOptions(routes, 0, externalversions.WithTransform(kube.Trim))
	deps := externalroutemaster.Deps{
		Kube:       m.env.Kube,
		Routes:     routes,
		Policies:   factory.AdminPolicyBasedRoute().V1().AdminPolicyBasedExternalRoutes(),
		Namespaces: core.Core().V1().Namespaces(),
		Pods:       core.Core().V1().Pods(),
		Nodes:      m.nodes,
		Writer:     m.writer,
		Barrier:    m.progress(),
		Given:      m.given,
		Config:     externalGatewayConfig(m.env.Config),
		Recorder:   m.recorder,
		Rerouted:   rerouted,
		Routed:     routed,
	}
	if m.tracker != nil { // it runs if other features place something on nodes
		deps.Health = m.tracker
	}
	c, err := externalroutemaster.New(deps)
	if err != nil {
		return nil, err
	}
	pods.OnAddressesChanged(c.LookAtPod)
	m.localSNATs = c.Attempted()
	m.beforePods = append(m.beforePods, c.Attempted())
	m.runners["external gateways"] = c
	measureExternalGateways(m.env.Metrics.Leader(), deps.Policies)
	return []starter{factory}, nil
}

// externalGatewayConfig returns the part of the configuration that external gateways depend on.
func externalGatewayConfig(cfg config.Config) externalroute.Config {
	c := externalroute.Config{
		Cluster:                cfg.Default.ClusterPrefixes(),
		Join:                   joinSubnets(cfg),
		Internal:               append([]netip.Prefix(nil), cfg.Kubernetes.ServiceCIDRs...),
		DisableSNATMultipleGWs: cfg.Gateway.DisableSNATMultipleGWs,
		GatewayNamespaces:      cfg.Features.GatewayNamespaces,
	}
	for _, f := range cfg.Families() {
		c.Internal = append(c.Internal, cfg.Gateway.JoinSubnet(f), cfg.Gateway.MasqueradeSubnet(f))
	}
	return c
}

// externalGateways adds the node side of external gateways, which deletes connections of the node's
// pods.
func (n *node) externalGateways(core, pods informers.SharedInformerFactory, switches ovs.Client) (err error) {
	n.runners["external gateways"], err = externalroutenode.New(externalroutenode.Deps{
		Namespaces:  core.Core().V1().Namespaces(),
		Pods:        pods.Core().V1().Pods(),
		OnApplied:   switches.OnFlowsInstalled,
		Settle:      n.flows.Settle,
		Connections: steered{},
		Resolve:     neighbor.Resolve,
		Own:         link.Addrs,
	})
	return err
}

// steered accesses the connections of the node's datapath that OVN steers.
type steered struct{}

// List implements externalroutenode.Connections.
func (steered) List(ctx context.Context) ([]host.Steered, error) {
	return conntrack.ListSteered(ctx, conntrack.DefaultRunDir)
}

// Flush implements externalroutenode.Connections.
func (steered) Flush(ctx context.Context, connections []host.Steered) error {
	return conntrack.FlushSteered(ctx, conntrack.DefaultRunDir, connections)
}
