// Package openflow is the driver of the flows of one OVS bridge,
// host.FlowWriter.
//
// Ours are all flows of the bridge once the start-up phase has ended (Sweep):
// the bridge is replaced in one bundle by the union of the contributions, each
// flow with Cookie. Flows do not round-trip as text, so the comparison with what
// is there is left to ovs-ofctl diff-flows, which compares what flows mean; where
// nothing differs nothing is written.
//
// Run notices within moments that ovs-vswitchd was restarted, which empties the
// bridge, and that somebody edited the flows, and repairs both.
//
// Callers: the node's gateway (bridge/node).
package openflow
