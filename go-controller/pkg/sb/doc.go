// Package sb does what OVN leaves to us with the southbound database, which is
// otherwise northd's and ovn-controller's. The UDP port of a node's tunnels:
// ovn-controller makes the node's Encap row and has no setting for the port, and
// the other nodes read it from the row. The chassis of a node that was deleted,
// which its ovn-controller had no chance to remove. And two that only read there:
// Barrier tells when a chassis has in force what was written northbound, and Ports
// which addresses the ports of pods have.
//
// Nothing is written while all is as wanted, and other options of a row are kept.
// Caller: pkg/app.
package sb
