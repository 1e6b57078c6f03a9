package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	servicemaster "github.com/ovnkube/ovnkube/go-controller/pkg/service/master"
	servicenode "github.com/ovnkube/ovnkube/go-controller/pkg/service/node"
)

// services adds the master side of Services.
func (m *master) services(core informers.SharedInformerFactory, egress ...*noreroute.PodSet) error {
	c, err := servicemaster.New(servicemaster.Deps{
		Services:       core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(),
		Nodes:          m.nodes,
		Pods:           core.Core().V1().Pods(),
		Namespaces:     gatewayNamespaces(m.env.Config, core),
		Addresses:      m.addresses,
		Writer:         m.writer,
		Recorder:       m.recorder,
		Egress:         slices.DeleteFunc(egress, func(p *noreroute.PodSet) bool { return p == nil }),
		Config:         serviceConfig(m.env.Config),
	})
	m.runners["services"] = c
	return err
}

// services adds the node side of Services.
func (n *node) services(core informers.SharedInformerFactory, switches ovs.Client) error {
	c, err := servicenode.New(servicenode.Deps{
		Node:           n.name,
		Services:       core.Core().V1().Services(),
		EndpointSlices: core.Discovery().V1().EndpointSlices(),
		Nodes:          n.self,
		Namespaces:     gatewayNamespaces(n.env.Config, core),
		Addresses:      n.addresses,
		Recorder:       n.recorder,
		Chains:         n.chains,
		Routes:         n.routes,
		Flows:          n.flows,
		FlushUDP: func(ctx context.Context, now func() func(service.Entry) bool) (int, error) {
			return conntrack.FlushStaleUDP(ctx, conntrack.DefaultRunDir, func() conntrack.Stale {
				stale := now()
				return func(client netip.Addr, to, from netip.AddrPort, zone uint16) bool {
					return stale(service.Entry{Client: client, To: to, From: from, HostOwned: zone == 0,
						Bridge: zone != 0 && zone == uint16(n.env.Config.Default.ConntrackZone)})
				}
			})
		},
		OnApplied: switches.OnFlowsInstalled,
		Config:    serviceConfig(n.env.Config),
		Marks:     bridge.DefaultMarks(n.env.Config.Default.ConntrackZone),
	})
	if err != nil {
		return err
	}
	n.runners["services"] = c
	n.addContributor("every Service to be tried once", c.Attempted(), c.Synced()...)
	return nil
}

// gatewayNamespaces returns the informer from which Services learn which external gateways pods are
// routed to, or nil if there are none, whatever an earlier configuration has left behind.
func gatewayNamespaces(cfg config.Config, core informers.SharedInformerFactory) coreinformers.NamespaceInformer {
	if !cfg.Features.MultiExternalGateway {
		return nil
	}
	return core.Core().V1().Namespaces()
}

// serviceConfig returns the part of the configuration that Services need.
func serviceConfig(cfg config.Config) service.Config {
	c := service.Config{
		Cluster:   cfg.Default.ClusterPrefixes(),
		Services:  cfg.Kubernetes.ServiceCIDRs,
		Join:      joinSubnets(cfg),
		HostPorts: slices.Concat(service.DefaultHostPorts, service.ConfiguredHostPorts(cfg.Default.EncapPort, cfg.Features.NodeHealthCheckPort)),
		NodePorts: cfg.Gateway.NodePort,
		Egress:    cfg.Features.EgressIP || cfg.Features.EgressService,
	}
	for _, f := range cfg.Families() {
		c.Masquerade = append(c.Masquerade, cfg.Gateway.MasqueradeSubnet(f))
	}
	return c
}

// reservedAddresses returns the snapshot of the addresses that belong to the cluster itself.
func reservedAddresses(
	env *Env, core informers.SharedInformerFactory, nodes coreinformers.NodeInformer, ips *egressIPInformers,
) (*reservedsnapshot.Addresses, error) {
	return reservedsnapshot.New(serviceConfig(env.Config).Ranges(), reservedsnapshot.Informers{
		Nodes: nodes, EndpointSlices: core.Discovery().V1().EndpointSlices(), EgressIPs: ips.informer(), APIServers: env.APIServers,
	})
}

// newAPIServers returns the informer of where this process is configured to reach the API servers, from whichever setting
// that is.
func newAPIServers(cfg config.Config, rc *rest.Config) cache.SharedIndexInformer {
	lookup := reservedsnapshot.Lookup(net.DefaultResolver.LookupNetIP)
	if proxied(rc) {
		lookup = optional(lookup)
	}
	return reservedsnapshot.NewAPIServers(rc.Host, lookup, serviceConfig(cfg).Ranges())
}

// proxied reports whether this process reaches the API servers through a proxy, which resolves their name.
func proxied(rc *rest.Config) bool {
	proxy := rc.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	server, _, err := rest.DefaultServerUrlFor(rc)
	if err != nil {
		return false
	}
	through, err := proxy(&http.Request{URL: server})
	return err == nil && through != nil
}

// optional makes the lack of an answer an answer: nobody waits for one.
func optional(lookup reservedsnapshot.Lookup) reservedsnapshot.Lookup {
	return func(ctx context.Context, network, host string) ([]netip.Addr, error) {
		addrs, err := lookup(ctx, network, host)
		var dns *net.DNSError
		if errors.As(err, &dns) {
			unknown := *dns
			unknown.IsNotFound = true
			err = &unknown
		}
		return addrs, err
	}
}
