// Package node is a node's side of external gateways: it forgets connections
// that would go on being answered through a gateway that is no longer in use.
//
// OVN answers a connection from outside through the gateway that its first packet
// came from, and remembers that gateway's MAC address with the connection. When a
// gateway leaves its pods, such connections would be sent there until they end.
//
// The master annotates each namespace with the gateways in use after the rows
// are written. One key compares the remembered MAC addresses with those of the
// gateways in use: nothing depends on having seen what was in use before.
//
// Caller: pkg/app.
package node
