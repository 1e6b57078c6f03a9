// Package node is the flow manager of a node's external bridge: it collects
// contributions of flows by owner, puts in the port numbers and has the OpenFlow
// driver replace the whole bridge in one bundle.
//
// Invariants: flows with the patch port are installed only once it exists and
// all required contributors have spoken: the base network, and EgressIP with its
// suppressed addresses. Until then a bridge without flows gets the early ones, which pin the
// shared MAC address to the host and keep the gateway router silent. When a port
// gets another number everything is written again. Features contribute whenever they like, also
// before the bridge is known.
//
// Callers: gateway/node attaches the bridge and contributes the base flows, node
// sides of services and egress features contribute theirs, pkg/app runs it.
package node
