// Package reachability is what the leading master publishes about its probes: for each node whether
// it answers, since when, and within which time.
//
// Plan is pure: it gets the published report, the results of the probes and the time, and returns
// the report to publish, or that nothing has to be published. Reports change rarely: a latency is
// the median of some samples, rounded up to a coarse step, which is raised if it is exceeded and
// lowered only if it is far too high.
//
// Invariants: reports are written at most once per StatePause, or per Pause if only latencies have
// changed, and at least once per Refresh, so that an older report is one that nobody keeps up to date. There is a latency only for nodes that answer.
//
// Callers: health/master publishes, explain reads.
package reachability
