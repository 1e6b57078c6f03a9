// Package master is the cluster-wide part of EgressIP: it assigns the addresses to
// nodes, and writes the status as well as the policies and translations that steer the pods'
// traffic.
//
// There are three queues, in one direction. Placement has a single key: it decides again for
// all EgressIPs and enqueues those whose decision changed. Each EgressIP has a key
// that writes its status and its Events. Each pod has a key that writes its rows;
// each pod is an owner of rows. Attach leaves the port of a pod to that key, whose worker
// writes it together with the pod's rows.
//
// Each queue has its own state, behind methods that take its mutex: decisions for placement,
// written for the statuses, podStates for the pods.
//
// The status is the only memory of placement, and the database the only memory of
// the rows: a restart writes nothing if nothing changed. Waiting for the dataplane does not
// occupy a worker, but happens in goroutines that enqueue the key again.
//
// Caller: pkg/app. pod/master calls Pending and Attach, and Look when it has written or removed the
// port of a pod.
package master
