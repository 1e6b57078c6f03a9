package network

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// NodeRows plans the rows of a node as far as the node is known.
func NodeRows(c Config, n topology.Node) []nb.Row {
	if len(n.Subnets) == 0 {
		return nil
	}
	rows := switchRows(n)
	rows = append(rows, nodeAddressPolicies(n)...)
	rows = append(rows, nodeNoPodPolicies(c, n)...)
	if n.HasGateway() {
		rows = append(rows, gatewayRows(c, n)...)
		rows = append(rows, exitRoutes(n)...)
	}
	return rows
}

// Missing lists what is not known of a node yet but is needed for its complete network;
// empty if NodeRows is complete.
func Missing(n topology.Node) string {
	var out []string
	add := func(missing bool, what string) {
		if missing {
			out = append(out, what)
		}
	}
	add(len(n.Subnets) == 0, "subnets")
	add(len(n.Join) == 0, "join address")
	add(n.Chassis == "", "chassis")
	add(n.ManagementMAC == "", "management port")
	add(n.Gateway.Mode == "" || n.Gateway.InterfaceID == "" || n.Gateway.MAC == "" || len(n.Gateway.Addrs) == 0, "gateway")
	return strings.Join(out, ", ")
}

// switchRows returns the node's switch, its connection to the cluster router and the port
// of the management interface.
func switchRows(n topology.Node) []nb.Row {
	onSwitch := nb.Parent{Table: nbdb.LogicalSwitchTable, Name: topology.NodeSwitch(n.Name)}
	config := map[string]string{}
	if s, ok := topology.PrefixOf(topology.IPv4, n.Subnets); ok {
		config["subnet"] = s.String()
	}
	if s, ok := topology.PrefixOf(topology.IPv6, n.Subnets); ok {
		config["ipv6_prefix"] = s.Addr().String()
	}
	router := make([]netip.Prefix, 0, len(n.Subnets))
	management := make([]netip.Prefix, 0, len(n.Subnets))
	for _, s := range n.Subnets {
		router = append(router, netip.PrefixFrom(topology.RouterAddr(s), s.Bits()))
		management = append(management, netip.PrefixFrom(topology.ManagementAddr(s), s.Bits()))
	}
	managementMAC := n.ManagementMAC
	if managementMAC == "" {
		managementMAC = macOf(management)
	}
	rows := []nb.Row{
		{
			ID:    topology.NodeSwitch(n.Name),
			Refs:  groupRefs(topology.ClusterLBGroup, topology.ClusterSwitchLBGroup),
			Model: &nbdb.LogicalSwitch{Name: topology.NodeSwitch(n.Name), OtherConfig: config},
		},
		{ID: topology.RouterToSwitch(n.Name), Parent: onClusterRouter, Model: &nbdb.LogicalRouterPort{
			Name:     topology.RouterToSwitch(n.Name),
			MAC:      topology.RouterMAC(n.Subnets),
			Networks: strs(router),
		}},
		routerPort(topology.SwitchToRouter(n.Name), onSwitch, topology.RouterToSwitch(n.Name)),
		{ID: topology.ManagementLSP(n.Name), Parent: onSwitch, Model: &nbdb.LogicalSwitchPort{
			Name:      topology.ManagementLSP(n.Name),
			Addresses: []string{PortAddresses(managementMAC, management)},
		}},
		{ID: resetID, Parent: onSwitch, Model: resetACL(n.Name)},
	}
	if n.Chassis != "" {
		name := topology.RouterToSwitch(n.Name) + "-" + n.Chassis
		rows = append(rows, nb.Row{
			ID:     name,
			Parent: nb.Parent{Table: nbdb.LogicalRouterPortTable, Name: topology.RouterToSwitch(n.Name)},
			Model:  &nbdb.GatewayChassis{Name: name, ChassisName: n.Chassis, Priority: 1},
		})
	}
	return rows
}

const resetID = "reset"

// resetACL allows TCP resets that a node's kernel sends to pods: they belong to no connection of
// the management port, and on switches with load balancers OVN drops such packets unless they
// bypass conntrack. Only the kernel datapath sees the marks of the kernel's packets.
func resetACL(node string) *nbdb.ACL {
	return &nbdb.ACL{
		Action: nbdb.ACLActionAllowStateless, Direction: nbdb.ACLDirectionFromLport, Priority: 1001,
		Match: fmt.Sprintf("inport == %q && tcp && pkt.mark == %#x", topology.ManagementLSP(node), topology.MarkReset),
	}
}

// PortAddresses returns the addresses of a switch port in OVN's format: the MAC address and
// the IP addresses, without prefix lengths.
func PortAddresses(mac string, addrs []netip.Prefix) string {
	var b strings.Builder
	b.WriteString(mac)
	for _, p := range addrs {
		b.WriteByte(' ')
		b.WriteString(p.Addr().String())
	}
	return b.String()
}

// groupRefs returns the references that add a switch or router to load balancer groups.
func groupRefs(groups ...string) []nb.Ref {
	refs := make([]nb.Ref, 0, len(groups))
	for _, g := range groups {
		refs = append(refs, nb.Ref{Column: "load_balancer_group", Table: nbdb.LoadBalancerGroupTable, Name: g})
	}
	return refs
}

// nodeAddressPolicies route traffic from pods to their own node's address to the management
// port: through the gateway router it would leave the node.
func nodeAddressPolicies(n topology.Node) []nb.Row {
	var rows []nb.Row
	for _, s := range n.Subnets {
		f := topology.FamilyOf(s.Addr())
		for _, addr := range n.GatewayAddresses(f) {
			rows = append(rows, nb.Row{
				ID:     addr.String(),
				Parent: onClusterRouter,
				Model: &nbdb.LogicalRouterPolicy{
					Priority: topology.PriorityNodeLocal,
					Match: fmt.Sprintf("inport == %q && %s.dst == %s /* %s */",
						topology.RouterToSwitch(n.Name), f.Match(), addr, n.Name),
					Action:   nbdb.LogicalRouterPolicyActionReroute,
					Nexthops: []string{topology.ManagementAddr(s).String()},
				},
			})
		}
	}
	return rows
}
