// Package egressservice plans EgressServices: the node that is the host of each,
// the router policies that steer the endpoints' traffic to it, and the rules with
// which the host translates that traffic to the address of the load balancer.
//
// It is pure. A Snapshot of API objects is decoded into a Service once; every
// planner is a function of Services and nodes. A Service that cannot be served gets
// a Refusal, never an error: it plans no rows and gives the reason.
//
// Invariants: an endpoint is only rerouted if its host translates its source
// address, that is for families that have an ingress address; endpoints outside
// the cluster subnets (on the host's network, or invented) are never
// touched; a label names at most one EgressService.
//
// Callers: the controllers in master/ and node/.
package egressservice
