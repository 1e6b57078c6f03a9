// Package noreroute plans the policies that keep east-west traffic away from the
// egress features, and the address sets they look at: traffic between pods and
// to the join network goes its usual way, and so does traffic of the features'
// pods to any host, a node or an API server, which is marked so that it leaves with
// the address of the pod's node. What means another machine on each node, such as link-local addresses, they reach by their
// own node in the same way.
//
// EgressIP and EgressService share them; they are there while either is enabled.
// The pods of each feature are one address set with one owner, so a pod that
// comes or goes is the update of a single row. PodSet is where a feature says
// which pods are its own.
//
// Invariants: one key writes all of it; the address sets are there before the
// policies that name them, and go after them; a feature that has not told its
// pods yet, after a restart, keeps what the database has.
//
// Callers: noreroute/master applies; the egress features fill the PodSets.
package noreroute
