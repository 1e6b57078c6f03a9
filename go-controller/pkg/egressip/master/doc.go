// Package master is the cluster's side of EgressIPs: it gives their addresses to
// nodes, writes the status, and the policies and translations by which the pods'
// traffic follows.
//
// Three queues, one direction. Placement has a single key: it decides again for
// all EgressIPs and enqueues those whose decision changed. Each EgressIP has a key
// that writes its status and its Events. Each pod has a key that writes its rows:
// one owner a pod. A new pod's rows are written together with its port, by Attach;
// while that is under way the key waits.
//
// Each has a state of its own, behind methods that take its mutex: decisions of placement,
// written of the statuses, podStates of the pods.
//
// The status is the only memory of placement, and the database that of what is
// done: nothing is written by a restart where nothing changed. What traffic needs
// is waited for without a worker, in goroutines that bring the key back.
//
// Caller: pkg/app. pod/master calls Pending and Attach.
package master
