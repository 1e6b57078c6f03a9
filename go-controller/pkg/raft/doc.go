// Package raft makes the members of the clustered databases of OVN, and cares for
// them while they run. ovsdb-server replicates a database by itself; what it leaves to
// others is how a member comes into being (ovsdb(7), "Clustered Database"): one of them
// creates the cluster, the others join it, and each of them never again, unless its
// disk is lost.
//
// Whether there is a cluster already is something that no member can find out by asking
// others, who may be away. So the ID of each cluster is kept in a ConfigMap: where it is,
// nobody creates another one, which would have no rows, and which ovnkube and ovn-northd
// would take for the truth.
package raft
