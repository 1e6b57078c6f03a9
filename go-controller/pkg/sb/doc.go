// Package sb does the two things that OVN leaves to us in the southbound database,
// which is otherwise northd's and ovn-controller's. The UDP port of a node's
// tunnels: ovn-controller makes the node's Encap row and has no setting for the
// port, and the other nodes read it from the row. And the chassis of a node that
// was deleted, which its ovn-controller had no chance to remove.
//
// Nothing is written while all is as wanted, and other options of a row are kept.
// Caller: pkg/app.
package sb
