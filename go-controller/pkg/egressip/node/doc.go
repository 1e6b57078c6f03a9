// Package node is the node side of EgressIP: it takes the addresses that the items
// assign to this node, releases those they no longer assign to it, and reports this in
// status.programmed. docs/design/egress-ip.md describes the order of the steps.
//
// Invariants: a node takes an address only while no other node's status entry lists it. It
// releases an address before it removes it from its status entry, and takes one before it adds it.
// Until this package has applied its flows, the external bridge suppresses all answers of OVN, so a
// returning node never answers for addresses it no longer holds. A restart without changes
// writes nothing, neither to the kernel nor to the API.
//
// Callers: pkg/app.
package node
