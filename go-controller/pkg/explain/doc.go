// Package explain answers which address a pod leaves the cluster with, and why, from
// the API objects of the cluster: New runs the planners of the features
// over a Snapshot, and Cluster's methods return the decisions and, according to the
// statuses, whether they are in force.
//
// It decides nothing itself: selection, precedence and placement are done by
// the features' own planners. It does no I/O and has no clock. For facts that only a master knows, such
// as its probes of nodes and the BFD sessions, the state in the API is assumed, and the
// answer says so.
//
// Callers: the command "ovnkube egress". Package reader makes Snapshots.
package explain
