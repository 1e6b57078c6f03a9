// Package trace follows a packet that a pod sends out of the cluster, hop by hop, using the current state of OVN
// and of the nodes on its path, and compares the result with the plan from package explain.
//
// On request it also sends real packets and compares the source address that they left with.
//
// The package does no I/O. A Tracer returns the next Question and the node to ask, takes the answers, and produces
// a Trace. Questions and Facts are exchanged between the command and the nodes; Decode accepts only valid packets.
// The parsers read the output of ovn-trace, ofproto/trace and iptables-save, and skip what they do not know.
//
// Callers: the command "ovnkube egress", and the subpackage node, which answers.
package trace
