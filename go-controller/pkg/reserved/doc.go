// Package reserved determines which addresses belong to the cluster itself: the ranges of pods, Services, join
// switch and masquerading, the addresses of nodes, their gateways and the API server, and the egress addresses in
// use. None of them can be served on behalf of a user or a load balancer provider.
//
// It does no I/O. The contents of API objects come from reserved/snapshot, which the master and the nodes share, so
// that they always agree.
//
// Callers: service, egressservice and their glue.
package reserved
