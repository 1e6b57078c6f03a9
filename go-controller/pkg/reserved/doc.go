// Package reserved says which addresses belong to the cluster itself: the ranges
// of pods, Services, joins and masquerading, the addresses of nodes, of their
// gateways and of the API server, and the egress addresses in use. Nothing that a
// user or a load balancer provider writes can be served under one of them.
//
// It is pure. What the objects of the API say comes from reserved/snapshot, which
// master and nodes share, so that they cannot come to different answers.
//
// Callers: service, egressservice and their glue.
package reserved
