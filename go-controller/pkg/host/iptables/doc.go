// Package iptables is the driver of iptables chains, host.ChainWriter, for both
// families and whichever backend the iptables commands of the host have.
//
// Ours are the chains whose names begin with host.ChainPrefix, with their whole
// content, and the jumps to them. The chains are declared once, when the Writer
// is made; features contribute rules. A pass reads the tables of a family with
// iptables-save and, where anything differs, replaces our chains and puts our jumps
// at the top of the built-in chains in one iptables-restore --noflush: atomic for
// each table, and one process however many rules. go-iptables, which has neither,
// finds the programs and their version. Rules are compared as text, so they must be
// canonical: host.Spec renders them.
//
// Before Sweep rules an earlier run left in our chains stay where they are, and
// chains that are no longer declared stay as well.
//
// Callers: the node's gateway, services and egress features; clean-up.
package iptables
