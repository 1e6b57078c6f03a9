// Package pod plans the pods' share of the network: which addresses a pod gets
// from its node's subnets (Allocator) and the northbound rows of its logical
// port (Rows).
//
// It does no I/O. The memory of addresses is the pods' ports in the northbound
// database, not their annotations, which anybody may have written: the Allocator is
// filled from it before it hands out anything. Invariants:
//
//   - A holder has one address of each subnet of its node, and keeps it.
//   - No two holders have the same address; of two pods that claim one, the
//     holder that came first keeps it.
//   - An address is released only after the port that used it is gone from the
//     northbound database, and is not handed out again before all others of the
//     subnet have been.
//   - The rows of a pod belong to owner {pod, "namespace/name"}.
//
// Caller: pod/master, the glue that reads pods and applies rows.
package pod
