// Package cluster makes, finds, changes and removes clusters.
//
// A cluster is a directory below the state directory: its record, its
// certificates, and one directory for each machine. Everything that runs hangs
// on the machines' first processes and lies in control groups under the
// cluster's own, so Delete finds it all, whatever stage creation stopped at.
// Callers: the kin command.
package cluster
