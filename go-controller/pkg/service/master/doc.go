// Package master is the cluster part of Services: it writes their load balancers and the
// template variables of the nodes.
//
// There are two queues, and only the first enqueues keys in the second. The queue of nodes
// has a key for each node, which writes the node's variables and stores what planning needs
// to know about it, and an empty key for rows that exist once. The queue of Services has a
// key for each Service. A change of a node that rows depend on enqueues the affected
// Services.
//
// An endpoint change is one transaction, or none if the backends are the same.
//
// Caller: pkg/app.
package master
