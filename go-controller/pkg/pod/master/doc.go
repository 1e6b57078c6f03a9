// Package master is the control-plane side of pods: it assigns each pod its
// addresses, announces them in the pod's annotation, and applies the rows of
// its logical port.
//
// Keys are "namespace/name" for pods and a bare name for nodes. Only a node's key
// passes the node's subnets to the allocator, together with the previous assignments
// to the node's pods from trustworthy sources; then it enqueues the node's pods again.
//
// Addresses come from the allocator and, at the start, from the pod's own port or
// the kubelet. The annotation decides nothing; if it differs it is written
// again. docs/design/pod-addresses.md explains why.
//
// The order makes crashes harmless: the annotation, with the pending annotation of
// an egress feature, is written before the port, since CNI ADD proceeds when it has
// seen both; a port is deleted before its addresses are released. They are released when Egress no
// longer has rows with them, which would steer the traffic of the next pod that has them.
//
// Caller: pkg/app runs the Controller on the leader.
package master
