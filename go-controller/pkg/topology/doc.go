// Package topology holds the values every other package speaks in: address
// families, the names of routers, switches and ports, policy priorities and
// packet marks, and what is known of a node. It imports the standard library
// only, has no state and performs no I/O.
//
// The names, priorities and marks are public interface: users, ovn-nbctl
// scripts and existing tools depend on them.
package topology
