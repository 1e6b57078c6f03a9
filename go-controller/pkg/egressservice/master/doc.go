// Package master is the cluster-wide part of EgressService: it chooses the hosts, and
// writes the status, the node labels, and the router policies that steer the
// endpoints' traffic.
//
// There are three queues, in one direction. Placement has a single key: it recomputes all
// hosts and enqueues the EgressServices whose decision changed.
// Each EgressService has a key that writes its rows and its status. Labels also has a
// single key: it makes the nodes' labels follow the traffic, and removes a
// label from one node before another gets it.
//
// The status is the only memory: after a restart a host stays host until it is
// proven dead, and nothing is written if nothing changed. The status names the host before
// rows are written, so that the host can prepare its translations; rows
// are removed before the host is removed from the status.
//
// Caller: pkg/app.
package master
