// Package kube is the thin interface to Kubernetes: the informers, the codecs of
// every annotation that ovnkube reads or writes, and patch helpers that send only
// differences. Callers: the controllers and pkg/app; planners see the decoded
// values of package topology.
package kube
