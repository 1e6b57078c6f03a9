// Package auditfile writes the egress audit log to a rotated file, or to standard output. It appends whole lines: a
// partial line left by a process that was killed stays a line of its own.
//
// Callers: app.
package auditfile
