// Package node is the flow manager of a node's external bridge: it collects contributions of flows
// by owner, inserts the port numbers and has the OpenFlow driver replace the flows of the whole
// bridge in one bundle, or change some flows if an owner wants only these to change.
//
// Invariants: flows with the patch port are installed only once it exists and all required
// contributors have contributed: the base network, and EgressIP with its suppressed addresses.
// Until then a bridge without flows gets the initial ones, which pin the shared MAC address to the
// host and keep the gateway router silent. If a port number changes, all flows are written again.
// Features may contribute at any time, even before the bridge is known.
//
// Callers: gateway/node attaches the bridge and contributes the base flows, the node sides of
// services and egress features contribute theirs, pkg/app runs it.
package node
