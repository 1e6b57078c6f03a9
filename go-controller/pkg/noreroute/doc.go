// Package noreroute plans the policies that exempt east-west traffic from the egress features, and the address sets
// that these policies use. Traffic between pods and to the join network takes its usual path, and so does traffic from
// the features' pods to any host (a node or an API server), which is marked so that it leaves with the address of the
// pod's node. In the same way, pods reach addresses that refer to a different machine on each node, such as link-local
// addresses, through their own node.
//
// EgressIP and EgressService share the policies, which exist while either feature is enabled. The pods of each feature
// are one address set with one owner, so adding or removing a pod updates a single row. Each feature reports its pods
// through a PodSet.
//
// Invariants: one key writes all rows; the address sets are written before the policies that refer to them, and deleted
// after them; until a feature has reported its pods after a restart, its addresses in the database are kept.
//
// Callers: noreroute/master applies; the egress features fill the PodSets.
package noreroute
