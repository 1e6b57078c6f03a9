// Package snapshot reads Services and related objects from the informers, and determines
// which Services an event affects. It is the part of the glue that master and node share:
// they must agree on which values in a Service are served.
//
// Callers: service/master, service/node.
package snapshot
