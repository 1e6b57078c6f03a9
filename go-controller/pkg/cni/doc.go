// Package cni is what the two halves of pod attachment share: the executable the
// container runtime calls (cni/shim) and the server in the node process
// (cni/node). It holds the request that goes over the unix socket, the names and
// external_ids of a pod's port, the network configuration file and the result.
//
// The package is pure. The names follow from sandbox and interface alone, so
// that DEL finds what ADD made, whoever died in between.
package cni
