package topology

// Priorities of the logical router policies on ClusterRouter; a higher one wins.
const (
	// PriorityNodeLocal sends traffic of pods to their own node's address to
	// the management port.
	PriorityNodeLocal = 1004
	// PriorityHybridRoute sends traffic of pods with external gateways to the
	// gateway router in local gateway mode.
	PriorityHybridRoute = 501
	// PriorityServiceReply lets answers to clients of a Service outside, whose
	// addresses are kept, go back the way the question came.
	PriorityServiceReply = 103
	// PriorityNoReroute keeps east-west traffic away from the egress features.
	PriorityNoReroute = 102
	// PriorityEgressService steers endpoints of an EgressService to its host.
	PriorityEgressService = 101
	// PriorityEgressIP steers pods of an EgressIP to its egress nodes.
	PriorityEgressIP = 100
)

// Priorities of ip rules on the nodes; a lower one wins.
const (
	// RuleEgressServiceNetwork looks up the table of an EgressService's network.
	RuleEgressServiceNetwork = 5000
	// RulePodToNode sends packets marked MarkPodToNode to the main table.
	RulePodToNode = 5999
	// RuleEgressIP looks up the table of an EgressIP's secondary interface.
	RuleEgressIP = 6000
)

// MarkPodToNode (0x3f0) marks pod-to-node traffic, which must leave with the
// node's address whatever egress feature selects the pod.
const MarkPodToNode = 1008

// Conntrack values on the external bridge.
const (
	// ConntrackZone is the default zone of the external bridge.
	ConntrackZone = 64000
	// ConntrackMarkOVN marks connections that belong to OVN.
	ConntrackMarkOVN = 1
	// ConntrackMarkHost marks connections that belong to the host.
	ConntrackMarkHost = 2
)
