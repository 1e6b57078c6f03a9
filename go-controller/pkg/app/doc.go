// Package app wires the roles of ovnkube together: it is the only package that imports everything.
//
// Run starts what every role needs (API clients, metrics, the HTTP server with /healthz, /readyz
// and /metrics) and then the roles: the master behind leader election, the node next to it. The
// first role that fails stops the process with an error, so that its supervisor restarts it; there
// is no attempt to continue with only some of the roles. A cancelled context is a clean stop: the
// master finishes before its lease is released, so that two masters never write at the same time.
//
// Caller: cmd/ovnkube.
package app
