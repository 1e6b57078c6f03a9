// Package cluster creates, finds, changes and deletes clusters.
//
// A cluster is a directory below the state directory: its record, its
// certificates, and one directory for each machine. All processes depend
// on the machines' first processes and are in control groups below the
// cluster's own, so Delete finds them all, whatever stage creation stopped at.
// Callers: the kin command.
package cluster
