package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// gatewayRows returns the node's gateway router with its ports, routes and NAT, and the
// external switch that connects it to the bridge.
func gatewayRows(c Config, n topology.Node) []nb.Row {
	router := topology.GatewayRouter(n.Name)
	onRouter := nb.Parent{Table: nbdb.LogicalRouterTable, Name: router}
	joinOptions := map[string]string{}
	if c.GatewayMTU > 0 && !n.NoPacketLengths {
		joinOptions["gateway_mtu"] = strconv.Itoa(c.GatewayMTU)
	}
	rows := []nb.Row{
		{
			ID:   router,
			Refs: groupRefs(topology.ClusterLBGroup, topology.ClusterRouterLBGroup),
			Model: &nbdb.LogicalRouter{
				Name: router,
				Options: map[string]string{
					"chassis":                       n.Chassis,
					"always_learn_from_arp_request": "false",
					"dynamic_neigh_routers":         "true",
					"lb_force_snat_ip":              "router_ip",
					"snat-ct-zone":                  "0",
				},
				ExternalIDs: map[string]string{
					"physical_ip":  bare(n.Gateway.Addrs)[0],
					"physical_ips": strings.Join(bare(n.Gateway.Addrs), ","),
				},
			},
		},
		{ID: topology.GatewayToJoin(n.Name), Parent: onRouter, Model: &nbdb.LogicalRouterPort{
			Name:     topology.GatewayToJoin(n.Name),
			MAC:      macOf(n.Join),
			Networks: strs(n.Join),
			Options:  joinOptions,
		}},
		routerPort(topology.JoinToGateway(n.Name), onJoinSwitch, topology.GatewayToJoin(n.Name)),
		{ID: topology.GatewayToExternal(n.Name), Parent: onRouter, Model: &nbdb.LogicalRouterPort{
			Name:        topology.GatewayToExternal(n.Name),
			MAC:         n.Gateway.MAC,
			Networks:    strs(n.Gateway.Addrs),
			ExternalIDs: map[string]string{"gateway-physical-ip": "yes"},
		}},
	}
	ordinary := externalSwitch{
		name: topology.ExternalSwitch(n.Name), localnet: n.Gateway.InterfaceID, network: topology.PhysicalNetwork, vlan: n.Gateway.VLAN,
		peer: topology.ExternalToGateway(n.Name), port: topology.GatewayToExternal(n.Name), mac: n.Gateway.MAC, announces: true,
	}
	rows = append(rows, ordinary.rows()...)
	rows = append(rows, externalGatewayRows(c, n, onRouter)...)
	rows = append(rows, macBindings(topology.GatewayToJoin(n.Name), c.clusterRouterJoin())...)
	rows = append(rows, gatewayRoutes(c, n, onRouter)...)
	if !c.DisableSNATMultipleGWs {
		rows = append(rows, gatewayNATs(c, n, onRouter)...)
	}
	return rows
}

// externalSwitch connects the gateway router to a bridge of the node.
type externalSwitch struct {
	name              string
	localnet, network string // the port to the bridge, and the network it is mapped to
	vlan              int
	peer, port, mac   string // the ports towards the router and of the router
	announces         bool   // announces the addresses that the router translates to
}

func (s externalSwitch) rows() []nb.Row {
	onSwitch := nb.Parent{Table: nbdb.LogicalSwitchTable, Name: s.name}
	localnet := &nbdb.LogicalSwitchPort{
		Name:      s.localnet,
		Type:      "localnet",
		Addresses: []string{"unknown"},
		Options:   map[string]string{"network_name": s.network},
	}
	if s.vlan != 0 {
		localnet.TagRequest = new(s.vlan)
	}
	options := map[string]string{"router-port": s.port}
	if s.announces {
		options["nat-addresses"], options["exclude-lb-vips-from-garp"] = "router", "true"
	}
	return []nb.Row{
		{ID: s.name, Model: &nbdb.LogicalSwitch{Name: s.name}},
		{ID: s.localnet, Parent: onSwitch, Model: localnet},
		{ID: s.peer, Parent: onSwitch, Model: &nbdb.LogicalSwitchPort{
			Name:      s.peer,
			Type:      "router",
			Addresses: []string{s.mac},
			Options:   options,
		}},
	}
}

// externalGatewayRows connect the gateway router to the second bridge, for external
// gateways only: other traffic to that network takes its usual path, as if the router were
// not connected to it. The bridge translates to the node's address there.
func externalGatewayRows(c Config, n topology.Node, onRouter nb.Parent) []nb.Row {
	e := n.Gateway.External
	if !e.Known() {
		return nil
	}
	port := topology.ExternalGatewayPort(n.Name)
	rows := []nb.Row{{ID: port, Parent: onRouter, Model: &nbdb.LogicalRouterPort{
		Name:     port,
		MAC:      e.MAC,
		Networks: strs(e.Addrs),
	}}}
	rows = append(rows, externalSwitch{
		name: topology.ExternalGatewaySwitch(n.Name), localnet: e.InterfaceID, network: topology.ExternalGatewayNetwork,
		peer: topology.ExternalGatewayPeer(n.Name), port: port, mac: e.MAC,
	}.rows()...)
	for _, s := range c.ClusterSubnets {
		f := topology.FamilyOf(s.CIDR.Addr())
		if !has(e.Addrs, f) {
			continue
		}
		policy := &nbdb.LogicalRouterPolicy{
			Priority: topology.PriorityNoExternalGateway,
			Match:    fmt.Sprintf("outport == %q && %s.src == %s", port, f.Match(), s.CIDR.Masked()),
			Action:   nbdb.LogicalRouterPolicyActionDrop,
		}
		for _, hop := range n.Gateway.NextHops {
			if on, ok := topology.PrefixOf(f, n.Gateway.Addrs); ok && on.Contains(hop) {
				policy.Action = nbdb.LogicalRouterPolicyActionReroute
				policy.Nexthops = append(policy.Nexthops, hop.String())
			}
		}
		rows = append(rows, nb.Row{ID: "no external gateway " + s.CIDR.Masked().String(), Parent: onRouter, Model: policy})
	}
	return rows
}

// gatewayRoutes returns the gateway router's routes to the pods and to external networks.
func gatewayRoutes(c Config, n topology.Node, onRouter nb.Parent) []nb.Row {
	var rows []nb.Row
	for _, s := range c.ClusterSubnets {
		f := topology.FamilyOf(s.CIDR.Addr())
		via, ok := topology.PrefixOf(f, c.clusterRouterJoin())
		if !ok || !has(n.Join, f) {
			continue
		}
		rows = append(rows, route(onRouter, s.CIDR.Masked().String(), via.Addr(), nil, nil))
	}
	for _, hop := range n.Gateway.NextHops {
		f := topology.FamilyOf(hop)
		if !has(n.Gateway.Addrs, f) || !slices.Contains(c.families(), f) {
			continue
		}
		rows = append(rows, route(onRouter, topology.Everywhere(f).String(), hop, nil, new(topology.GatewayToExternal(n.Name))))
	}
	return rows
}

// gatewayNATs translate pod addresses to the node's address for external traffic.
func gatewayNATs(c Config, n topology.Node, onRouter nb.Parent) []nb.Row {
	var rows []nb.Row
	for _, s := range c.ClusterSubnets {
		external, ok := topology.PrefixOf(topology.FamilyOf(s.CIDR.Addr()), n.Gateway.Addrs)
		if !ok {
			continue
		}
		cidr := s.CIDR.Masked().String()
		rows = append(rows, nb.Row{ID: cidr, Parent: onRouter, Model: &nbdb.NAT{
			Type:       nbdb.NATTypeSNAT,
			ExternalIP: external.Addr().String(),
			LogicalIP:  cidr,
		}})
	}
	return rows
}

// exitRoutes returns the node's routes on the cluster router: to its gateway router, and
// from its pods to external networks through the host's kernel (local gateway mode) or the
// gateway router (shared).
func exitRoutes(n topology.Node) []nb.Row {
	var rows []nb.Row
	for _, j := range n.Join {
		rows = append(rows, route(onClusterRouter, j.Addr().String(), j.Addr(), nil, nil))
	}
	for _, s := range n.Subnets {
		via := topology.ManagementAddr(s)
		if n.Gateway.Mode == topology.GatewayShared {
			j, ok := topology.PrefixOf(topology.FamilyOf(s.Addr()), n.Join)
			if !ok {
				continue
			}
			via = j.Addr()
		}
		rows = append(rows, route(onClusterRouter, s.String(), via, &nbdb.LogicalRouterStaticRoutePolicySrcIP, nil))
	}
	return rows
}

// route returns one static route; a nil policy routes by destination.
func route(on nb.Parent, prefix string, via netip.Addr, policy *nbdb.LogicalRouterStaticRoutePolicy, port *string) nb.Row {
	id := prefix + " via " + via.String()
	if policy != nil {
		id = *policy + " " + id
	}
	return nb.Row{ID: id, Parent: on, Model: &nbdb.LogicalRouterStaticRoute{
		IPPrefix:   prefix,
		Nexthop:    via.String(),
		Policy:     policy,
		OutputPort: port,
	}}
}

func has(prefixes []netip.Prefix, f topology.Family) bool {
	_, ok := topology.PrefixOf(f, prefixes)
	return ok
}

// bare returns addresses without their prefix lengths.
func bare(prefixes []netip.Prefix) []string {
	out := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.Addr().String())
	}
	return out
}
