// Package waits knows what this process waits for. Whatever cannot go on without
// something that others do says so while it waits: with the part of the program, the
// object where it is one of many, and what is missing. Readiness, a metric and, where an
// administrator can do something about it, Events tell all of them.
//
// A failing key is none of these: package queue tells what failed and tries it again.
//
// Callers: package queue, drivers that keep a connection up, the CNI server, app.
package waits
