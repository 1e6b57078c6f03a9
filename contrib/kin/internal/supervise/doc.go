// Package supervise implements a machine's first process: it starts
// the machine's daemons in order, restarts them when they end, writes
// their output to files, reaps orphans, and stops everything in reverse order.
//
// Invariants: only the reaper in reap.go waits for children, so that no exit
// status is lost to two waiters; a unit is ready only after its probe and its
// Started commands succeeded since its latest start.
// Callers: package machine, in the process that is PID 1 of a machine. The kin
// command talks to it over the socket in control.go.
package supervise
