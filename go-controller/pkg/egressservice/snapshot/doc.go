// Package snapshot reads EgressServices and what belongs to them from the
// informers, and says which of them an event is about. It is the half of the glue
// that master and node share.
//
// Callers: egressservice/master, egressservice/node.
package snapshot
