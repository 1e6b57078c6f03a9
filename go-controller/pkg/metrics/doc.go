// Package metrics holds the program's metrics. Every metric is defined in names.go, from which docs/metrics.md is
// generated; their names start with "ovnkube_". No label has unbounded values: nodes are used as label values,
// objects and pods never are.
//
// A Set has its own registry: nothing is registered globally, and tests can make as many as they like.
// Set.Workqueue provides the metrics of all work queues (reconcile time, failures as retries, depth) to client-go;
// it must be installed before the first queue is made.
//
// A Leader holds the metrics that only the leader of the masters has. State that the informers have anyway (objects
// by condition, addresses by node) is read from them on each scrape, so that there is no copy that could be wrong;
// happenings (moves, probes, the stages of a failover) are reported by the controllers.
//
// Callers: app, which passes a Leader to the controllers of the egress features.
package metrics
