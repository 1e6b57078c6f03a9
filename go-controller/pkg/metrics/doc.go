// Package metrics holds what the program measures about itself. Every metric is
// defined in names.go, from which docs/metrics.md is generated; their names start
// with "ovnkube_". No label has values without bound: nodes are in labels, objects
// and pods never are.
//
// A Set has its own registry: nothing is registered globally, and tests make as
// many as they like. Set.Workqueue gives the metrics of all work queues
// (reconcile time, failures as retries, depth) to client-go; it must be installed
// before the first queue is made.
//
// A Leader is what only the leader of the masters knows. What the informers have
// anyway (objects by condition, addresses by node) is read from them when metrics are
// read, so that there is no copy to go wrong; what passes (moves, probes, the stages of a
// failover) the controllers tell it.
//
// Callers: app, which passes a Leader to the controllers of the egress features.
package metrics
