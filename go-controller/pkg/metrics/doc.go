// Package metrics holds what the program measures about itself. Every name is
// in names.go; they start with "ovnkube_".
//
// A Set has its own registry: nothing is registered globally, and tests make as
// many as they like. Set.Workqueue gives the metrics of all work queues
// (reconcile time, failures as retries, depth) to client-go; it must be installed
// before the first queue is made.
//
// Caller: app.
package metrics
