// Package topology defines the values that all other packages use: address families, the
// names of routers, switches and ports, policy priorities and packet marks, and what is
// known about a node. It imports only the standard library, has no state and performs no
// I/O.
//
// The names, priorities and marks are a public interface: users, ovn-nbctl scripts and
// existing tools depend on them.
package topology
