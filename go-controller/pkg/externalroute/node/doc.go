// Package node is the node side of external gateways: it forgets connections
// that would continue to be answered through a gateway that is no longer in use.
//
// OVN answers a connection from outside through the gateway that its first packet
// came from, and stores that gateway's MAC address with the connection. When a
// gateway is removed, such connections would still be sent there until they end.
//
// The master annotates each namespace with the gateways in use after the rows
// are written. A single key compares the stored MAC addresses with those of the
// gateways in use: this does not require having seen the previously used gateways. Until
// the node's ovn-controller has applied the removal, it may store a removed gateway again, so the
// connections are compared again when it reports what it has applied.
//
// Caller: pkg/app.
package node
