// Package master is the control-plane side of the base network: it assigns
// node subnets and join addresses, records them in node annotations, and
// applies the rows that package network plans.
//
// Keys are node names, and "" for the cluster. The cluster key alone assigns,
// so assignments are made one after the other; a node's key waits until its
// annotations show what was assigned and then applies the node's rows.
// Annotations are the memory; an assignment lives in this process only until
// the informer shows it.
//
// Caller: pkg/app runs the Controller on the leader.
package master
