// Package iptables is the driver for iptables chains, the host.ChainWriter, for both families and
// whichever backend the host's iptables commands use.
//
// We own the chains whose names begin with host.ChainPrefix, with their whole content, and the
// jumps to them. The chains are declared once, when the Writer is created; features contribute
// rules. A pass reads the tables of a family with iptables-save and, if anything differs, replaces
// our chains and puts our jumps at the top of the built-in chains in one iptables-restore
// --noflush: this is atomic for each table, and takes one process for any number of rules.
// go-iptables, which can do neither, finds the programs and their version. Rules are compared as
// text, so they must be canonical: host.Spec renders them.
//
// Before Sweep, rules that an earlier run left in our chains stay where they are, and so do chains
// that are no longer declared.
//
// Cleanup uses the programs of every backend that is installed, and asks the kernel's nftables by
// netlink whether a chain is left.
//
// Callers: the node's gateway, services and egress features; cleanup.
package iptables
