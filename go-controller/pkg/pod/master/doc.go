// Package master is the control-plane side of pods: it gives each pod its
// addresses, announces them in the pod's annotation, and applies the rows of
// its logical port.
//
// Keys are "namespace/name" for pods and a bare name for nodes. A node's key
// alone tells the allocator about the node's subnets, together with what the
// node's pods have been given before, by the word of those who can be believed; then it brings the node's pods back.
//
// Addresses come from the allocator and, at the start, from the pod's own port or
// the kubelet. The annotation decides nothing; where it says otherwise it is written
// anew. docs/design/pod-addresses.md tells why.
//
// Order, so that a crash in between does no harm: the annotation, with the mark of
// an egress feature, is written before the port, since CNI ADD goes on when it has
// seen both; a port is deleted before its addresses are released.
//
// Caller: pkg/app runs the Controller on the leader.
package master
