// Package app wires the roles of ovnkube together: it is the only package that
// imports everything.
//
// Run starts what every role needs (API clients, metrics, the HTTP server with
// /healthz, /readyz and /metrics) and then the roles: the master behind leader
// election, the node next to it. The first role that fails stops the process
// with an error, so that its supervisor starts it afresh; there is no attempt to
// go on with a part. A cancelled context is a clean stop: the master finishes
// before its lease is given back, so that two masters never write at once.
//
// Caller: cmd/ovnkube.
package app
