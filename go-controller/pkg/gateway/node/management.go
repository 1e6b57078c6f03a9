package node

import (
	"context"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ensureManagement creates the management port with its addresses, routes and
// kernel settings, and the rules that every node has.
func (g *Gateway) ensureManagement(ctx context.Context, node topology.Node) error {
	const port = topology.ManagementPort
	plan := gateway.ManagementPort(node.Subnets, g.MTU)
	err := g.OVS.EnsurePort(ctx, ovs.Port{
		Bridge: topology.IntegrationBridge, Name: port, Type: "internal", MAC: plan.MAC, MTU: plan.MTU,
		ExternalIDs: map[string]string{ovs.IfaceID: topology.ManagementLSP(g.Node)},
	})
	if err != nil {
		return err
	}
	if err := g.awaitLink(ctx, port, plan.MAC); err != nil {
		return err
	}
	// Before the link is up: it must never answer with default settings.
	if err := g.ensureManagementSettings(ctx); err != nil {
		return err
	}
	if _, err := link.Up(port); err != nil {
		return err
	}
	if err := g.acceptServicePort(node); err != nil {
		return err
	}
	addrs := map[host.Address]host.AddressUse{}
	for _, p := range plan.Addrs {
		addrs[host.Address{Link: port, Prefix: p}] = host.AddressUse{}
	}
	if err := g.Addrs.Apply(ctx, gateway.Contributor, addrs); err != nil {
		return err
	}
	routes := gateway.Routes(node.Subnets, g.ClusterSubnets, g.ServiceCIDRs, g.MasqueradeSubnets)
	if err := g.Routes.Apply(ctx, gateway.Contributor, routes); err != nil {
		return err
	}
	return g.Chains.Apply(ctx, gateway.Contributor, gateway.Rules(node.Subnets))
}

// acceptServicePort makes the management port accept what pods send from the port of a Service, which OVN leads there
// in local gateway mode only. The cluster may have had that mode before.
func (g *Gateway) acceptServicePort(node topology.Node) error {
	if g.Egress && g.Mode != topology.GatewayShared {
		return link.AcceptMarked(topology.ManagementPort, topology.ServicePortMAC(node.Subnets), topology.MarkServicePort)
	}
	return link.AcceptNothing()
}

// ensureFlows contributes the base flows of the external bridges.
func (g *Gateway) ensureFlows(ctx context.Context, node topology.Node, a attachments) error {
	for _, b := range a.all() {
		facts, marks := g.bridgeFacts(b), bridge.DefaultMarks(b.zone)
		flows := bridge.CommonFlows(facts)
		for _, p := range a.primary {
			family := g.bridgeFamily(node, p)
			flows = append(flows, bridge.Flows(facts, family, marks)...)
			if g.Egress {
				// The gateway router uses the node's ordinary address on all bridges.
				flows = append(flows, bridge.ServicePort(family, marks)...)
			}
			if g.Egress && !b.second() {
				flows = append(flows, bridge.Marked(family, marks)...)
			}
			if b.second() {
				own, _ := topology.PrefixOf(family.Family, b.primary)
				family.Node = own.Addr()
				flows = append(flows, bridge.OwnAddress(family, marks)...)
			}
		}
		if err := b.flows.Apply(ctx, gateway.Contributor, flows); err != nil {
			return b.about(err)
		}
	}
	return nil
}

// bridgeFamily returns the data that the flows need for the family of a node's address.
func (g *Gateway) bridgeFamily(node topology.Node, p netip.Prefix) bridge.Family {
	f := topology.FamilyOf(p.Addr())
	family := bridge.Family{Family: f, Node: p.Addr()}
	family.Subnet, _ = topology.PrefixOf(f, node.Subnets)
	for _, c := range g.ClusterSubnets {
		if topology.FamilyOf(c.Addr()) == f {
			family.Cluster = append(family.Cluster, c)
		}
	}
	return family
}
