// Package master is the cluster's side of EgressServices: it chooses the hosts,
// writes status and node labels, and the router policies that steer the
// endpoints' traffic.
//
// Three queues, one direction. Placement has a single key: it recomputes where
// everything is served and enqueues the EgressServices whose decision changed.
// Each EgressService has a key that writes its rows and its status. Labels has a
// single key again: it makes the nodes' labels follow the traffic, and takes a
// label off one node before another gets it.
//
// The status is the only memory: after a restart a host stays host until it is
// proven dead, and nothing is written where nothing changed. Rows wait for the
// status that names their host, so that the host can have its translation ready;
// they are gone before the status is taken away.
//
// Caller: pkg/app.
package master
