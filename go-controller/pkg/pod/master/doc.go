// Package master is the control-plane side of pods: it gives each pod its
// addresses, announces them in the pod's annotation, and applies the rows of
// its logical port.
//
// Keys are "namespace/name" for pods and a bare name for nodes. A node's key
// alone tells the allocator about the node's subnets, together with what the
// node's pods have been given before; then it brings the node's pods back.
//
// Order, so that a crash in between does no harm: the annotation is written
// before the port, since the annotation is the memory; a port is deleted before
// its addresses are released.
//
// Caller: pkg/app runs the Controller on the leader.
package master
