// Package egressservice plans EgressServices: which node is the host of each,
// the router policies that steer the endpoints' traffic to it, and the rules by
// which the host gives that traffic the address of the load balancer.
//
// It is pure. A Snapshot of API objects is decoded into a Service once; every
// planner is a function of Services and nodes. What cannot be served is a
// Refusal, never an error: it plans to nothing and says why.
//
// Invariants: an endpoint is rerouted only where its host translates its source
// address, that is for families that have an ingress address; endpoints outside
// of the cluster subnets (the host's network, made-up addresses) are never
// touched; a label names at most one EgressService.
//
// Callers: the glue in master/ and node/.
package egressservice
