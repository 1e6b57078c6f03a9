package network

import (
	"fmt"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// noPodPolicies drop traffic to pod addresses outside all node subnets, in shared gateway
// mode. The only matching route is the one for all traffic of a node's pods, to the node's
// gateway router, which sends it back. A discard route would have a shorter prefix and
// lose. Policies apply after routing, so it suffices to match the output port.
func noPodPolicies(c Config) []nb.Row {
	rows := make([]nb.Row, 0, len(c.ClusterSubnets))
	for _, s := range c.ClusterSubnets {
		f := topology.FamilyOf(s.CIDR.Addr())
		rows = append(rows, noPodPolicy(fmt.Sprintf("outport == %q && %s.dst == %s", topology.ClusterRouterToJoin, f.Match(), s.CIDR.Masked())))
	}
	return rows
}

// noServicePolicies drop traffic to cluster addresses of Services that reaches the cluster
// router: the load balancers of the switches do not have these addresses. In local gateway
// mode it would go to the host, whose route for that range leads back; in shared mode it
// would leave the node.
func noServicePolicies(c Config) []nb.Row {
	var rows []nb.Row
	for _, p := range c.ServiceCIDRs {
		if f := topology.FamilyOf(p.Addr()); slices.Contains(c.families(), f) {
			rows = append(rows, noPodPolicy(fmt.Sprintf("%s.dst == %s", f.Match(), p.Masked())))
		}
	}
	return rows
}

// nodeNoPodPolicies do the same as noPodPolicies in local gateway mode, where the node's
// route leads to its host: traffic from the node's switch may go back there only if it is
// for the pods there.
func nodeNoPodPolicies(c Config, n topology.Node) []nb.Row {
	var rows []nb.Row
	if n.Gateway.Mode != topology.GatewayLocal {
		return nil
	}
	for _, s := range c.ClusterSubnets {
		f := topology.FamilyOf(s.CIDR.Addr())
		match := fmt.Sprintf("inport == %[1]q && outport == %[1]q && %[2]s.dst == %[3]s", topology.RouterToSwitch(n.Name), f.Match(), s.CIDR.Masked())
		for _, own := range n.Subnets {
			if s.CIDR.Contains(own.Addr()) {
				match += fmt.Sprintf(" && %s.dst != %s", f.Match(), own)
			}
		}
		rows = append(rows, noPodPolicy(match))
	}
	return rows
}

func noPodPolicy(match string) nb.Row {
	return nb.Row{ID: match, Parent: onClusterRouter, Model: &nbdb.LogicalRouterPolicy{
		Priority: topology.PriorityNoPod, Match: match, Action: nbdb.LogicalRouterPolicyActionDrop,
	}}
}
