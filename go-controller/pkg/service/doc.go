// Package service plans Kubernetes Services: the load balancers in the northbound database
// and, for a node, the configuration of its kernel and its external bridge for traffic that
// does not come from pods.
//
// It is free of I/O and state. A Snapshot of API objects is decoded into a Service;
// MasterRows and NodeStateOf are functions of a Service and of nodes. Services that are not
// ours to serve (headless, ExternalName, served by another proxy) result in empty plans.
//
// How Services are reached:
//
//   - From pods: through the load balancers of their node's switch, for every address of a
//     Service.
//   - From the host, and from outside through the host: the kernel sends the traffic to the
//     cluster address, which is routed to the management port, where the same load
//     balancers apply. If an endpoint is not a pod, the packet would come back that way
//     with the host's own address, so the kernel chooses among the endpoints itself.
//   - From outside in shared gateway mode: the bridge sends the traffic to the gateway
//     router, which has its own load balancers, unless an endpoint is not a pod or the
//     traffic is for a node port that all nodes serve.
//
// Invariants: rows that are equal on all nodes exist once, in a load balancer group, and
// node addresses in them are template variables; other rows exist only for nodes with an
// endpoint. So the number of rows grows with services and endpoints, never with services
// times nodes. Backend lists are sorted, so equal endpoints make equal rows. Traffic to a
// port without endpoints is rejected at once instead of timing out.
//
// Callers: the glue in master/ and node/.
package service
