// Package explain answers which address a pod leaves the cluster with, and why, from
// what the API server has of the cluster: New runs the planners of the features
// over a Snapshot, and Cluster's methods say what they decided and what the statuses
// say of it being in force.
//
// It decides nothing itself: selection, precedence and placement are those of the
// features' own planners. It does no I/O and has no clock. What only a master knows, such
// as its probes of nodes and the sessions of BFD, is taken as the API shows it, and the
// answer says so.
//
// Callers: the command "ovnkube egress". Package reader makes Snapshots.
package explain
