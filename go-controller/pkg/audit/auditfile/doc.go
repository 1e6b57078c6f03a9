// Package auditfile writes the egress audit log to a file that is rotated, or to standard
// output. It appends whole lines: what a process that was killed has left of a line stays
// a line of its own.
//
// Callers: app.
package auditfile
