// Package sb does what OVN leaves to us in the southbound database, which otherwise belongs to northd and
// ovn-controller. EncapPort sets the UDP port of a node's tunnels: ovn-controller creates the node's Encap row and
// has no setting for the port, and the other nodes read it from the row. DeleteChassis deletes the chassis of a
// deleted node, which its ovn-controller had no chance to remove. Bindings deletes the rows that keep northd from
// replacing a router. Two parts only read: Barrier tells when a chassis has applied what was written to the
// northbound database, and Ports which addresses the ports of pods have.
//
// Nothing is written while everything is as wanted, and other options of a row are kept. Caller: pkg/app.
package sb
