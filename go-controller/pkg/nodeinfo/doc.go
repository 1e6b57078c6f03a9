// Package nodeinfo decides which annotations of nodes count, for every reader in a
// process: View is an informer of nodes with the annotations that are in force.
//
// What a node's annotation says is in force where it is valid in itself (package
// kube decodes it), plausible in this cluster, and takes nothing from another node.
// Otherwise what was in force before stays so, and the refusal is told. Invariants:
//
//   - A refused annotation changes nothing: not for its node, not for another one.
//   - An annotation that this process writes (Owns) changes only to what this
//     process has decided (Decide); one that another process writes, only when it
//     has been there for a while (Settle): its owner puts a foreign value right
//     before.
//   - Of two nodes that claim one subnet, join address, chassis, MAC address or
//     node address, the one that has it in force keeps it; at the start, the one
//     that the database has it for (Recall), else the older.
//
// The memory is that of the process; at the start it is what the databases have.
//
// Callers: pkg/app makes one View for each role and gives it to all readers.
package nodeinfo
