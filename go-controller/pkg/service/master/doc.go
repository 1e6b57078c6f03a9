// Package master is the cluster's side of Services: it writes their load balancers
// and the template variables of the nodes.
//
// Two queues, one direction. Nodes has a key for each node, which writes the
// node's variables and remembers what planning needs of it, and an empty key for
// what exists once. Services has a key for each Service. Where a node changes in a
// way that rows depend on, it enqueues the Services that are concerned.
//
// An endpoint change is one transaction, none where the backends are the same.
//
// Caller: pkg/app.
package master
