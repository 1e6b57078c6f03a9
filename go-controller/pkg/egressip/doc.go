// Package egressip decides what becomes of EgressIPs: which node holds which
// address, which pods leave with it, and the rows and rules that make it so.
// docs/design/egress-ip.md tells the whole.
//
// It is pure: its parent package has no clients, no kernel, no clock and no log.
// Callers: egressip/master and egressip/node.
package egressip
