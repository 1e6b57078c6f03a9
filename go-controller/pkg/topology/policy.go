package topology

import "math"

// Priorities of the logical router policies on ClusterRouter; a higher one wins.
const (
	// PriorityNoPod drops what is for a cluster address and has got past the load balancers,
	// and what is for the range of pods and for no node's subnet: a
	// default route would lead it out and back in.
	PriorityNoPod = 1005
	// PriorityNodeLocal sends traffic of pods to their own node's address to
	// the management port.
	PriorityNodeLocal = 1004
	// PriorityGatewayPodToNode sends what pods with external gateways have for nodes to
	// the management port of their own: it is not for the gateways.
	PriorityGatewayPodToNode = 502
	// PriorityHybridRoute sends traffic of pods with external gateways to the
	// gateway router in local gateway mode.
	PriorityHybridRoute = 501
	// PriorityServicePortInside keeps what pods send from the port of a Service to
	// pods, routers and nodes away from PriorityServicePort.
	PriorityServicePortInside = 104
	// PriorityServicePort takes what pods of the egress features send from the port
	// of a Service that keeps the addresses of its clients to where replies can be
	// told from the rest: replies have to go back the way the client came. In local
	// gateway mode it also takes that of pods with external gateways to the gateway
	// router, which has these connections.
	PriorityServicePort = 103
	// PriorityNoReroute keeps east-west traffic away from the egress features.
	PriorityNoReroute = 102
	// PriorityEgressService steers endpoints of an EgressService to its host.
	PriorityEgressService = 101
	// PriorityEgressIP steers pods of an EgressIP to its egress nodes.
	PriorityEgressIP = 100
)

// PriorityUntranslated is that of the policies on gateway routers that mark what is to
// leave with the addresses of pods.
const PriorityUntranslated = 100

// PriorityExternalGateway is that of the policies on gateway routers that let pods use
// the second uplink whose gateways are there, and PriorityNoExternalGateway that of those
// that keep all other traffic away from it: to be on a network makes a router send there
// what is for it.
const (
	PriorityExternalGateway   = 60
	PriorityNoExternalGateway = 50
)

// Priorities of ip rules on the nodes; a lower one wins.
const (
	// RuleInside keeps what is for pods, Services and nodes in the main table, and what is marked
	// MarkNodeReply.
	RuleInside = 4999
	// RuleEgressServiceNetwork looks up the table of an EgressService's network.
	RuleEgressServiceNetwork = 5000
	// RulePodToNode sends packets marked MarkPodToNode to the main table, and what
	// pods send that an EgressService serves.
	RulePodToNode = 5999
	// RuleEgressIP looks up the table of an EgressIP's secondary interface.
	RuleEgressIP = 6000
)

// MainTable is the number of the kernel's main routing table.
const MainTable = 254

// MarkPodToNode (0x3f0) marks pod-to-node traffic, and what pods reach by their own
// node, which must leave with the node's address whatever egress feature selects the
// pod.
const MarkPodToNode = 1008

// MarkServicePort (0x3f1) marks what pods of the egress features send from the port
// of a Service that keeps the addresses of its clients. Only replies may leave with
// the address of the node.
const MarkServicePort = 1009

// MarkNodeReply (0x3f3) marks on nodes what pods answer to who has called them by an address of
// the node, which the node's own routes are for.
const MarkNodeReply = 1011

// MarkUntranslated (0x3f2) marks what pods with external gateways send that is meant to
// leave with their own addresses. Nothing else may.
const MarkUntranslated = 1010

// MarkReset (0x3f4) marks what a node answers to pods that close connections which it has
// forgotten. It belongs to no connection that OVN knows, which would drop it.
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

// SecondZone returns the conntrack zone of the bridge for external gateways, given that of
// the external bridge: the one after it.
func SecondZone(zone int) int {
	if zone >= math.MaxUint16 {
		return zone - 1
	}
	return zone + 1
}
