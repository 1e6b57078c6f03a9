// Package master is the control-plane side of EgressIPs: it assigns their addresses to
// nodes, writes their statuses, and writes the policies and translations that reroute the
// traffic of the pods.
//
// There are three queues, in one direction. Placement has a single key: it decides for
// all EgressIPs and enqueues those whose decision changed. Each EgressIP has a key
// that writes its status and its Events. Each pod has a key that writes its rows, which
// have one owner for each pod. The rows of a new pod are written together with its port, by
// Attach; meanwhile the pod is locked.
//
// Each queue has its own state, behind methods that take its mutex: decisions for placement,
// written for statuses, podStates for pods.
//
// Placement remembers nothing but the statuses, and the database holds what has been
// done: a restart writes nothing if nothing has changed. Waiting for chassis does not block a
// worker: it happens in goroutines that enqueue the key again.
//
// Caller: pkg/app. pod/master calls Pending and Attach.
package master
