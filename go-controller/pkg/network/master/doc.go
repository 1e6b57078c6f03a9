// Package master is the control plane part of the base network: it assigns node subnets and
// join addresses, records them in node annotations, and applies the rows that package
// network plans.
//
// Keys are node names, and "" for the cluster. Only the cluster key assigns, so assignments
// are made one after another; a node's key waits until its annotations show what was
// assigned and then applies the node's rows. State is kept in annotations; an assignment is
// held in memory only until the informer shows it.
//
// Caller: pkg/app runs the Controller on the leader.
package master
