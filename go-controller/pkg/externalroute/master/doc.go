// Package master is the cluster's side of external gateways: it reads policies,
// annotations and gateway pods, writes the rows of every node, and reports.
//
// Four queues, one direction. Deciding has a single key: it recomputes who uses
// which gateways and enqueues the nodes whose pods it concerns. Each node has a
// key that writes its rows, with those of all nodes that wait: a hop more or less
// is one transaction. When the nodes are written, policies get their
// status and namespaces the annotation by which the nodes learn which gateways
// are no longer in use.
//
// There is no memory but the API and the database: after a restart everything is
// decided anew, and nothing is written where nothing changed. Only which BFD sessions a
// node has not ended yet stands nowhere else (sessions.go).
//
// Caller: pkg/app.
package master
