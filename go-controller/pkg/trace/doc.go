// Package trace follows a packet that a pod sends out of the cluster, hop by hop, by what OVN and
// the nodes on the way say now, and compares that with what package explain says is
// planned.
//
// On request it goes on with real packets, and compares the address that they left with.
//
// It is pure. A Tracer says which Question is to be asked of which node next, takes the
// answers, and ends with a Trace. Questions and Facts are what the command and the nodes
// exchange; Decode accepts nothing but what a packet may be. The parsers read what ovn-trace,
// ofproto/trace and iptables-save print, and pass over what they do not know.
//
// Callers: the command "ovnkube egress", and package node below it, which answers.
package trace
