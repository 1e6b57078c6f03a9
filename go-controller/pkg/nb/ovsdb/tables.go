package ovsdb

import (
	"strings"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// networkFeature is the feature that owns rows of tables without external_ids: the base
// network.
const networkFeature = "network"

// literals are the tables that the writer supports. Supporting another table takes only a
// literal here.
var literals = []Table{
	{
		Name: nbdb.LogicalRouterTable, New: func() model.Model { return &nbdb.LogicalRouter{} },
		Key: []string{"name"}, Refs: []string{"load_balancer_group"},
	},
	{
		Name: nbdb.LogicalSwitchTable, New: func() model.Model { return &nbdb.LogicalSwitch{} },
		Key: []string{"name"}, Refs: []string{"load_balancer_group"},
	},
	{
		Name: nbdb.LogicalRouterPortTable, New: func() model.Model { return &nbdb.LogicalRouterPort{} },
		Key:     []string{"name"},
		Parents: map[string]string{nbdb.LogicalRouterTable: "ports"},
		Ignore:  []string{"ipv6_prefix"}, // northd writes delegated prefixes
	},
	{
		Name: nbdb.LogicalSwitchPortTable, New: func() model.Model { return &nbdb.LogicalSwitchPort{} },
		Key:     []string{"name"},
		Parents: map[string]string{nbdb.LogicalSwitchTable: "ports"},
		Ignore:  []string{"up", "tag", "dynamic_addresses"}, // northd writes them
	},
	{
		Name: nbdb.ACLTable, New: func() model.Model { return &nbdb.ACL{} },
		Parents: map[string]string{nbdb.LogicalSwitchTable: "acls"},
	},
	{
		Name: nbdb.LogicalRouterStaticRouteTable, New: func() model.Model { return &nbdb.LogicalRouterStaticRoute{} },
		Parents: map[string]string{nbdb.LogicalRouterTable: "static_routes"},
		Refs:    []string{"bfd"},
		// Nodes delete connections that are still answered through a former gateway.
		Awaited: func(m model.Model, deleted bool) bool {
			return deleted && m.(*nbdb.LogicalRouterStaticRoute).Options["ecmp_symmetric_reply"] == "true"
		},
	},
	{
		Name: nbdb.LogicalRouterPolicyTable, New: func() model.Model { return &nbdb.LogicalRouterPolicy{} },
		Parents: map[string]string{nbdb.LogicalRouterTable: "policies"},
		// The master waits for the chassis of pods of EgressIPs. Nodes delete connections that began before pods of an
		// EgressService were led to them.
		Awaited: func(m model.Model, deleted bool) bool {
			p := m.(*nbdb.LogicalRouterPolicy)
			return p.Priority == topology.PriorityEgressIP ||
				p.Priority == topology.PriorityEgressService && !deleted && p.Action == nbdb.LogicalRouterPolicyActionReroute
		},
	},
	{
		Name: nbdb.NATTable, New: func() model.Model { return &nbdb.NAT{} },
		Parents: map[string]string{nbdb.LogicalRouterTable: "nat"},
		Refs:    []string{"exempted_ext_ips"},
		// The master waits for the chassis of egress nodes to translate. Those of EgressIPs have its name in their external_ids.
		Awaited: func(m model.Model, deleted bool) bool { return !deleted && m.(*nbdb.NAT).ExternalIDs["name"] != "" },
	},
	{
		Name: nbdb.GatewayChassisTable, New: func() model.Model { return &nbdb.GatewayChassis{} },
		Key:     []string{"name"},
		Parents: map[string]string{nbdb.LogicalRouterPortTable: "gateway_chassis"},
	},
	{
		Name: nbdb.AddressSetTable, New: func() model.Model { return &nbdb.AddressSet{} },
		Key: []string{"name"},
	},
	{
		Name: nbdb.BFDTable, New: func() model.Model { return &nbdb.BFD{} },
		Key:    []string{"logical_port", "dst_ip"},
		Ignore: []string{"status"}, // northd writes it
		Notify: []string{"status"},
	},
	{
		Name: nbdb.StaticMACBindingTable, New: func() model.Model { return &nbdb.StaticMACBinding{} },
		Key: []string{"logical_port", "ip"}, Identity: macBindingOwner,
	},
	{
		Name: nbdb.ForwardingGroupTable, New: func() model.Model { return &nbdb.ForwardingGroup{} },
		Parents: map[string]string{nbdb.LogicalSwitchTable: "forwarding_groups"},
	},
	{
		Name: nbdb.LoadBalancerTable, New: func() model.Model { return &nbdb.LoadBalancer{} },
		Key: []string{"name"},
		Parents: map[string]string{
			nbdb.LoadBalancerGroupTable: "load_balancer",
			nbdb.LogicalSwitchTable:     "load_balancer",
			nbdb.LogicalRouterTable:     "load_balancer",
		},
		// Nodes delete UDP conntrack entries that lead to a destination which OVN no longer
		// uses.
		Awaited: func(m model.Model, _ bool) bool {
			protocol := m.(*nbdb.LoadBalancer).Protocol
			return protocol != nil && *protocol == nbdb.LoadBalancerProtocolUDP
		},
	},
	{
		Name: nbdb.LoadBalancerGroupTable, New: func() model.Model { return &nbdb.LoadBalancerGroup{} },
		Key: []string{"name"}, Identity: groupOwner, Few: true,
	},
	{
		Name: nbdb.ChassisTemplateVarTable, New: func() model.Model { return &nbdb.ChassisTemplateVar{} },
		Key: []string{"chassis"},
	},
}

// servicesFeature is the feature that owns the rows that Services need for a node.
const servicesFeature = "service-nodes"

// macBindingOwner returns the owner of a MAC binding by its port: the node for its gateway
// router, the cluster for the cluster router, and for the cluster router's port to the
// switch of a node the object of the Services feature for that node.
func macBindingOwner(m model.Model) (nb.Owner, bool) {
	port := m.(*nbdb.StaticMACBinding).LogicalPort
	if port == topology.ClusterRouterToJoin {
		return nb.Owner{Feature: networkFeature}, true
	}
	for _, prefix := range []string{topology.GatewayToJoin(""), topology.GatewayToExternal("")} {
		if node, ok := strings.CutPrefix(port, prefix); ok {
			return nb.Owner{Feature: networkFeature, Object: node}, true
		}
	}
	if node, ok := strings.CutPrefix(port, topology.RouterToSwitch("")); ok {
		return nb.Owner{Feature: servicesFeature, Object: node}, true
	}
	return nb.Owner{}, false
}

// groupOwner returns the owner of the cluster's load balancer groups, which is the cluster.
func groupOwner(m model.Model) (nb.Owner, bool) {
	switch m.(*nbdb.LoadBalancerGroup).Name {
	case topology.ClusterLBGroup, topology.ClusterSwitchLBGroup, topology.ClusterRouterLBGroup:
		return nb.Owner{Feature: networkFeature}, true
	}
	return nb.Owner{}, false
}
