// Package reachability is what the leading master publishes of its probes: for each node
// whether it answers, since when, and within which time.
//
// Plan is pure: it gets what was published, what the probes say and the time, and returns
// what is to be published, or that nothing is. What it says changes rarely: a latency
// is the median of some samples, rounded up to a coarse step, which is raised where it is
// exceeded and lowered only where it is far too high.
//
// Invariants: nothing is published more often than every Pause, and something every
// Refresh, so that an older report is one that nobody keeps up to date. A latency is only
// told of a node that answers.
//
// Callers: health/master publishes, explain reads.
package reachability
