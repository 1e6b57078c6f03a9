// Package pod plans the pods' part of the network: the addresses that a pod gets
// from its node's subnets (Allocator) and the northbound rows of its logical
// port (Rows).
//
// It does no I/O. Assigned addresses are stored in the pods' ports in the northbound
// database, not in the pods' annotations, which users may write: the Allocator is
// initialized from the ports before it assigns any address. Invariants:
//
//   - A holder has one address of each subnet of its node, and keeps it.
//   - No two holders have the same address; if two pods claim one, the
//     first holder keeps it.
//   - An address is released only after the port that used it is removed from the
//     northbound database, and all rows of EgressIPs that steer its traffic. Addresses are assigned
//     in turn.
//   - The rows of a pod belong to owner {pod, "namespace/name"}.
//
// Caller: pod/master, the controller that reads pods and applies rows.
package pod
