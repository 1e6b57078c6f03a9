// Package lab is a kin cluster together with what the end-to-end tests and the demo do to it: pods
// that send and answer, an outside host that tells which source address it saw, and waiting for
// conditions.
//
// Everything is observed from outside the product: through the Kubernetes API, commands on the
// machines, and packets. Nothing sleeps; Until polls a condition.
//
// Callers: the walkthrough, the demo and the tests.
package lab
