package topology

import "math"

// Priorities of the logical router policies on ClusterRouter; a higher one wins.
const (
	// PriorityNoPod drops traffic to cluster addresses that no load balancer has handled,
	// and traffic to the pod ranges outside all node subnets: a default route would send it
	// out and back in.
	PriorityNoPod = 1005
	// PriorityNodeLocal sends traffic from pods to their own node's address to the
	// management port.
	PriorityNodeLocal = 1004
	// PriorityGatewayPodToNode sends traffic to nodes from pods with external gateways to
	// the management port of their own node: it must not go to the gateways.
	PriorityGatewayPodToNode = 502
	// PriorityHybridRoute sends traffic from pods with external gateways to the gateway
	// router in local gateway mode.
	PriorityHybridRoute = 501
	// PriorityServicePortInside exempts traffic from the port of a Service to pods, routers
	// and nodes from PriorityServicePort.
	PriorityServicePortInside = 104
	// PriorityServicePort sends traffic of pods of the egress features from the port of a
	// Service that preserves client addresses to where replies can be distinguished from
	// other packets: replies have to go back the way the client came. In local gateway mode
	// it also sends such traffic of pods with external gateways to the gateway router,
	// which tracks these connections.
	PriorityServicePort = 103
	// PriorityNoReroute exempts east-west traffic from the egress features.
	PriorityNoReroute = 102
	// PriorityEgressService routes traffic from endpoints of an EgressService to its host.
	PriorityEgressService = 101
	// PriorityEgressIP routes traffic from pods of an EgressIP to its egress nodes.
	PriorityEgressIP = 100
)

// PriorityUntranslated is the priority of the policies on gateway routers that mark traffic
// that leaves with pod addresses.
const PriorityUntranslated = 100

// PriorityExternalGateway is the priority of the policies on gateway routers that allow the
// second uplink for pods whose external gateways are there, and PriorityNoExternalGateway
// the priority of those that keep all other traffic off it: a router connected to a network
// would otherwise send traffic for that network there.
const (
	PriorityExternalGateway   = 60
	PriorityNoExternalGateway = 50
)

// Priorities of ip rules on the nodes; a lower one wins.
const (
	// RuleBeforeVRF routes traffic to pods and Services by the main table, before the kernel's own rule
	// for VRF devices, which has priority 1000.
	RuleBeforeVRF = 999
	// RuleInside routes traffic to pods, Services and nodes, and packets marked MarkNodeReply, by
	// the main table.
	RuleInside = 4999
	// RuleEgressServiceNetwork looks up the table of an EgressService's network.
	RuleEgressServiceNetwork = 5000
	// RulePodToNode routes packets marked MarkPodToNode, and traffic from pods that an
	// EgressService serves, by the main table.
	RulePodToNode = 5999
	// RuleEgressIP looks up the table of an EgressIP's secondary interface.
	RuleEgressIP = 6000
)

// MainTable is the number of the kernel's main routing table.
const MainTable = 254

// MarkPodToNode (0x3f0) marks traffic from pods to nodes and to addresses that pods reach
// through their own node. It must leave with the node's address, whichever egress feature
// selects the pod.
const MarkPodToNode = 1008

// MarkServicePort (0x3f1) marks traffic of pods of the egress features from the port of a
// Service that preserves client addresses. Only replies may leave with the address of the
// node.
const MarkServicePort = 1009

// MarkNodeReply (0x3f3) marks, on nodes, replies of pods to clients that connected through an
// address of the node. They follow the node's own routes.
const MarkNodeReply = 1011

// MarkUntranslated (0x3f2) marks traffic from pods with external gateways that is meant to
// leave with the pods' own addresses. No other traffic may.
const MarkUntranslated = 1010

// MarkReset (0x3f4) marks a node's replies to pods that close connections which the node
// has forgotten. They belong to no connection known to OVN, which would drop them.
const MarkReset = 1012

// Conntrack values on the external bridge.
const (
	// ConntrackZone is the default zone of the external bridge.
	ConntrackZone = 64000
	// ConntrackMarkOVN marks connections that belong to OVN.
	ConntrackMarkOVN = 1
	// ConntrackMarkHost marks connections that belong to the host.
	ConntrackMarkHost = 2
)

// SecondZone returns the conntrack zone of the bridge for external gateways: the one after
// that of the external bridge.
func SecondZone(zone int) int {
	if zone >= math.MaxUint16 {
		return zone - 1
	}
	return zone + 1
}
