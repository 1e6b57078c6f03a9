// Package waits tracks what this process waits for. Whatever cannot continue without something that others provide
// reports that while it waits: with the part of the program, the object if it is one of many, and what is missing.
// Readiness and a metric report all waits, and Events those that an administrator can do something about.
//
// A failing key is not a wait: package queue reports what failed and retries it.
//
// Callers: package queue, drivers that maintain a connection, the CNI server, app.
package waits
