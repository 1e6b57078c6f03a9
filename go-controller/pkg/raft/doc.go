// Package raft creates the members of OVN's clustered databases, and maintains them while they run. ovsdb-server
// replicates a database by itself, but leaves the creation of members to others (ovsdb(7), "Clustered Database"):
// one of them creates the cluster, the others join it, and each does so only once unless its disk is lost.
//
// A member cannot find out whether the cluster exists by asking others, which may be down. So the ID of each
// cluster is stored in a ConfigMap: if it is there, nobody creates another cluster, which would be empty, and which
// ovnkube and ovn-northd would take for the real one.
package raft
