// Package supervise is what a machine's first process does all day: it starts
// the machine's daemons in order, starts them again when they end, writes what
// they print to files, reaps orphans, and stops everything in reverse order.
//
// Invariants: only the reaper in reap.go waits for children, so that no exit
// status is lost to two waiters; a unit is ready only after its probe and its
// Started commands succeeded since its latest start.
// Callers: package machine, in the process that is PID 1 of a machine. The kin
// command talks to it over the socket in control.go.
package supervise
