// Package walkthrough is the life of an EgressService as docs/egress-service.md
// tells it, on a real cluster: before, created, its node stopped, deleted. Each
// step shows the commands a user would type with what they really printed, and
// checks it: the first thing that is not as it must be ends the walk.
//
// Callers: the demo prints it; the end-to-end tests run it in each gateway mode,
// and with MetalLB in place of ByHand.
package walkthrough
