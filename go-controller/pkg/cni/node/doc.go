// Package node is the server that attaches the pods of a node and detaches them,
// on behalf of the shim the container runtime calls. An attachment is a veth
// pair and a port of br-int; the addresses are those that the pod's logical port has
// in the southbound database, ADD waits until the pod's annotation says the same, and
// succeeds only when ovn-controller has installed the port's flows.
//
// Invariants: one request at a time works on a sandbox, and DEL ends an ADD that
// is still waiting; an ADD that fails leaves nothing; DEL needs nothing but the
// sandbox's name and succeeds when there is nothing left; a port whose sandbox
// is gone is removed within a minute.
//
// Callers: pkg/app.
package node
