// Package lab is a kin cluster with what the end-to-end tests and the demo do
// to it: pods that send and answer, a host outside that says which source
// address it saw, and waiting until something holds.
//
// Everything is seen from outside the product: the Kubernetes API, commands on
// the machines, packets. Nothing sleeps; Until polls a condition.
//
// Callers: the walkthrough, the demo and the tests.
package lab
