// Package snapshot reads EgressServices and the objects that belong to them from the
// informers, and determines which of them an event affects. The controllers
// in master and node share it.
//
// Callers: egressservice/master, egressservice/node.
package snapshot
