package network

import (
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Parents of rows that nodes share.
var (
	onClusterRouter = nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter}
	onJoinSwitch    = nb.Parent{Table: nbdb.LogicalSwitchTable, Name: topology.JoinSwitch}
)

// ClusterRows plans the rows that exist once: the cluster router and its port
// on the join switch, the load balancer groups, and for each assigned gateway
// router the MAC address behind its join addresses.
func ClusterRows(c Config, assigned map[string]Assignment) []nb.Row {
	join := c.clusterRouterJoin()
	if len(join) == 0 {
		return nil
	}
	rows := []nb.Row{
		{ID: topology.ClusterRouter, Model: &nbdb.LogicalRouter{
			Name:        topology.ClusterRouter,
			ExternalIDs: map[string]string{"k8s-cluster-router": "yes"},
			Options:     map[string]string{"always_learn_from_arp_request": "false"},
		}},
		{ID: topology.JoinSwitch, Model: &nbdb.LogicalSwitch{Name: topology.JoinSwitch}},
		{ID: topology.ClusterRouterToJoin, Parent: onClusterRouter, Model: &nbdb.LogicalRouterPort{
			Name:     topology.ClusterRouterToJoin,
			MAC:      macOf(join),
			Networks: strs(join),
		}},
		routerPort(topology.JoinToClusterRouter, onJoinSwitch, topology.ClusterRouterToJoin),
	}
	for _, g := range []string{topology.ClusterLBGroup, topology.ClusterSwitchLBGroup, topology.ClusterRouterLBGroup} {
		rows = append(rows, nb.Row{ID: g, Model: &nbdb.LoadBalancerGroup{Name: g}})
	}
	rows = append(rows, noPodPolicies(c)...)
	rows = append(rows, noServicePolicies(c)...)
	for _, a := range assigned {
		rows = append(rows, macBindings(topology.ClusterRouterToJoin, a.Join)...)
	}
	return rows
}

// macBindings returns the MAC bindings on port for the router with these join addresses.
// Without them the first packet through a load balancer of a gateway router waits for ARP
// on the join switch, and meanwhile OVN loses the state that the packet's source has to be
// translated.
func macBindings(port string, addrs []netip.Prefix) []nb.Row {
	rows := make([]nb.Row, 0, len(addrs))
	for _, p := range addrs {
		rows = append(rows, nb.Row{
			// The table has no external_ids: its unique columns are the row's ID.
			ID: port + "/" + p.Addr().String(),
			Model: &nbdb.StaticMACBinding{
				LogicalPort: port,
				IP:          p.Addr().String(),
				MAC:         macOf(addrs),
			},
		})
	}
	return rows
}

// routerPort returns the port of a switch towards a router. It has the addresses of the
// router's port.
func routerPort(name string, parent nb.Parent, peer string) nb.Row {
	return nb.Row{ID: name, Parent: parent, Model: &nbdb.LogicalSwitchPort{
		Name:      name,
		Type:      "router",
		Addresses: []string{"router"},
		Options:   map[string]string{"router-port": peer},
	}}
}

// strs returns the string forms of prefixes.
func strs(prefixes []netip.Prefix) []string {
	out := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}
