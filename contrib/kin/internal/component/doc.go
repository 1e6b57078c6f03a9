// Package component defines what runs on a node: for every daemon its command
// line, the files it reads, and its readiness probe.
//
// Everything but hooks.go is a pure function of the cluster's configuration and
// of the node; package supervise runs the result. Paths are those a node sees.
package component
