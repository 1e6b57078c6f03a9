// Package egressip plans EgressIPs: which node holds which address, which pods leave
// with it, and the rows and rules that implement this. docs/design/egress-ip.md describes
// the design.
//
// It is pure: its parent package has no clients, no kernel, no clock and no log.
// Callers: egressip/master and egressip/node.
package egressip
