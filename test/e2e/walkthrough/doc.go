// Package walkthrough runs the life of an EgressService as described in docs/egress-service.md on a
// real cluster: before it exists, when it is created, when its node is stopped, and when it is
// deleted. Each step shows the commands that a user would type with their real output, and checks
// it: the first deviation ends the walk.
//
// Callers: the demo prints it; the end-to-end tests run it in each gateway mode, and with MetalLB
// in place of ByHand.
package walkthrough
