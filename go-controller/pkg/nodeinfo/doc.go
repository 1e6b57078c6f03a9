// Package nodeinfo decides which node annotations take effect, for every reader in a process: View is a node informer
// whose nodes have the effective annotations.
//
// An annotation takes effect if it is valid in itself (package kube decodes it), plausible in this cluster, and takes
// nothing from another node. Otherwise the previous value stays effective, and the refusal is reported. Invariants:
//
//   - A refused annotation changes nothing, neither for its node nor for another one.
//   - An annotation that this process writes (Owns) changes only to what this process has decided (Decide). An
//     annotation that another process writes changes only after its new value has been there for a while (Settle): its
//     owner corrects a foreign value before that.
//   - If two nodes claim the same subnet, join address, chassis, MAC address or node address, the one for which it is
//     effective keeps it; at startup that is the one that the database has it for (Recall), else the older node.
//
// The effective values are kept in memory; at startup they are taken from the databases.
//
// Callers: pkg/app makes one View for each role and gives it to all readers.
package nodeinfo
