package network

import (
	"net/netip"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Recall is the reverse of NodeRows: it returns what can be derived about a node from its
// rows. Rows changed by someone else may contain anything.
func Recall(name string, rows []nb.Row) topology.Node {
	n := topology.Node{Name: name}
	var routes []*nbdb.LogicalRouterStaticRoute
	for _, r := range rows {
		switch m := r.Model.(type) {
		case *nbdb.LogicalRouterPort:
			recallPort(&n, m)
		case *nbdb.LogicalRouter:
			n.Chassis = m.Options["chassis"]
		case *nbdb.GatewayChassis:
			if n.Chassis == "" {
				n.Chassis = m.ChassisName
			}
		case *nbdb.LogicalSwitchPort:
			switch {
			case m.Name == topology.ManagementLSP(name) && len(m.Addresses) > 0:
				n.ManagementMAC, _, _ = strings.Cut(m.Addresses[0], " ")
			case m.Type == "localnet" && m.Options["network_name"] == topology.ExternalGatewayNetwork:
				n.Gateway.External.InterfaceID = m.Name
			case m.Type == "localnet":
				n.Gateway.InterfaceID = m.Name
				if m.TagRequest != nil {
					n.Gateway.VLAN = *m.TagRequest
				}
			}
		case *nbdb.LogicalRouterStaticRoute:
			routes = append(routes, m)
		}
	}
	for _, r := range routes {
		recallRoute(&n, r)
	}
	return n
}

func recallPort(n *topology.Node, p *nbdb.LogicalRouterPort) {
	networks := make([]netip.Prefix, 0, len(p.Networks))
	for _, f := range topology.Families { // a set has no order
		for _, text := range p.Networks {
			if prefix, err := netip.ParsePrefix(text); err == nil && topology.FamilyOf(prefix.Addr()) == f {
				networks = append(networks, prefix)
			}
		}
	}
	switch p.Name {
	case topology.RouterToSwitch(n.Name):
		for _, prefix := range networks {
			n.Subnets = append(n.Subnets, prefix.Masked())
		}
	case topology.GatewayToJoin(n.Name):
		n.Join = networks
	case topology.GatewayToExternal(n.Name):
		n.Gateway.MAC, n.Gateway.Addrs = p.MAC, networks
	case topology.ExternalGatewayPort(n.Name):
		n.Gateway.External.MAC, n.Gateway.External.Addrs = p.MAC, networks
	}
}

func recallRoute(n *topology.Node, r *nbdb.LogicalRouterStaticRoute) {
	via, err := netip.ParseAddr(r.Nexthop)
	prefix, errPrefix := netip.ParsePrefix(r.IPPrefix)
	switch {
	case err != nil || errPrefix != nil:
	case r.OutputPort != nil && *r.OutputPort == topology.GatewayToExternal(n.Name) && prefix.Bits() == 0:
		n.Gateway.NextHops = append(n.Gateway.NextHops, via)
	case r.Policy != nil && *r.Policy == nbdb.LogicalRouterStaticRoutePolicySrcIP:
		n.Gateway.Mode = topology.GatewayShared
		if via == topology.ManagementAddr(prefix) {
			n.Gateway.Mode = topology.GatewayLocal
		}
	}
}
