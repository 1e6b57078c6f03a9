// Package service plans Kubernetes Services: the load balancers in the
// northbound database and, for a node, what its kernel and its external bridge
// do about traffic that does not start at a pod.
//
// It is pure. A Snapshot of API objects is decoded into a Service once; MasterRows
// and NodeState are functions of a Service and of nodes. What is not ours to serve
// (headless, ExternalName, another proxy's) plans to nothing.
//
// Who answers:
//
//   - Pods: the load balancers of their node's switch, for every address a
//     Service has.
//   - The host, and what comes from outside through it: the kernel sends it to the
//     cluster address, which is routed into the management port, where the same
//     load balancers answer. Where an endpoint is not a pod, that path would bring
//     the packet back with the host's own address, so the kernel chooses among the
//     endpoints itself.
//   - From outside in shared gateway mode: the bridge hands it to the gateway
//     router, which has load balancers of its own, unless an endpoint is not a pod
//     or it is for a node port that all nodes answer.
//
// Invariants: rows that are equal on all nodes exist once, in a load balancer
// group, and node addresses in them are template variables; other rows exist only
// for nodes with an endpoint, so rows grow with services and endpoints, never with
// services times nodes. A backend list is sorted, so equal endpoints are equal rows.
// Whatever has no endpoint is refused at once, not left to time out.
//
// Callers: the glue in master/ and node/.
package service
