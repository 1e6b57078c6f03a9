// Package kube is the thin seam to Kubernetes: the informers, the codecs of
// every annotation we read or write, and the patch helpers that send only what
// differs. Callers: the glue packages and pkg/app; planners see the decoded
// values of package topology.
package kube
