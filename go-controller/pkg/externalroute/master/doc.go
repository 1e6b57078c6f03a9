// Package master is the cluster-wide part of external gateways: it reads policies,
// annotations and gateway pods, writes the rows of every node, and reports.
//
// There are four queues, in one direction. Deciding has a single key: it recomputes which
// namespaces use which gateways and enqueues the nodes of the affected pods. Each node has a
// key that writes its rows, together with those of all waiting nodes: a change of a hop
// is one transaction. When the nodes are written, policies get their
// status, and namespaces get the annotation from which the nodes learn which gateways
// are no longer in use.
//
// There is no state outside the API and the database: after a restart everything is
// decided again, and nothing is written if nothing changed. The only exception are the BFD sessions
// that a node has not ended yet (sessions.go).
//
// Caller: pkg/app.
package master
