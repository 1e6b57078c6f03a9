// Package sb sets the one thing in the OVN southbound database that a node has to
// set itself: the UDP port of its tunnels. ovn-controller makes the node's Encap
// row and has no setting for the port; the other nodes read it from the row.
//
// Nothing is written while the port is as wanted, and other options of the row
// are kept. Caller: pkg/app, node role.
package sb
