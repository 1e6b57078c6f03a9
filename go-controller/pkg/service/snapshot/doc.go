// Package snapshot reads Services and what belongs to them from the informers, and
// says which of them an event is about. It is the half of the glue that master and
// node share: what a Service gets of what is written in it must not differ between
// them.
//
// Callers: service/master, service/node.
package snapshot
