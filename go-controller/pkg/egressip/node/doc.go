// Package node is the node side of EgressIP: it takes the addresses that the items
// give to this node, lets go of those they do not give it any more, and says so in
// status.programmed. docs/design/egress-ip.md tells the order of things.
//
// Invariants: an address is taken only while no other node's status entry has it; it is
// let go before the status entry says so, and taken before it does. Before this package
// has spoken the external bridge is silent for OVN, so a node that comes back never
// answers for what it does not hold any more. A restart with nothing changed
// writes nothing, neither to the kernel nor to the API.
//
// Callers: pkg/app.
package node
