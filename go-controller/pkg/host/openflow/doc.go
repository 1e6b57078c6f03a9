// Package openflow is the driver for the flows of one OVS bridge, a host.FlowWriter.
//
// Once the startup phase has ended (Sweep) we own all flows of the bridge: they are replaced in one
// bundle by the union of the contributions, each flow with Cookie. Flows do not round-trip as text,
// so ovs-ofctl diff-flows does the comparison, because it compares the meaning of flows; if nothing
// differs, nothing is written.
//
// Run notices quickly when ovs-vswitchd was restarted, which empties the bridge, and when somebody
// edited the flows, and repairs both.
//
// Callers: the node's gateway (bridge/node).
package openflow
