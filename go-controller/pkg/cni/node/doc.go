// Package node is the server that attaches and detaches the pods of a node, on behalf of
// the shim that the container runtime calls. An attachment is a veth pair and a port of
// br-int. The addresses are those of the pod's logical port in the southbound database. ADD
// waits until the pod's annotation agrees with them, and succeeds only when ovn-controller
// has installed the port's flows.
//
// Invariants: only one request at a time is processed for a sandbox, and DEL ends an ADD
// that is still waiting; an ADD that fails leaves nothing behind; DEL needs only the
// sandbox's name and succeeds if nothing is left; a port whose sandbox is gone is removed
// within a minute.
//
// Callers: pkg/app.
package node
