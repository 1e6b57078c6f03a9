// Package egressip decides how EgressIPs are implemented: which node holds which
// address, which pods use it, and the rows and rules that this takes.
// docs/design/egress-ip.md describes the design.
//
// It is pure: its parent package has no clients, no kernel, no clock and no log.
// Callers: egressip/master and egressip/node.
package egressip
