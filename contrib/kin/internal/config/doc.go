// Package config holds the configuration of a cluster: the kin
// configuration file and the flags that override it, as one validated value.
//
// Invariants: a Cluster that Validate accepted is complete (every default is
// filled in) and consistent; nothing outside this package applies defaults.
// Callers: the command line, and package cluster, which stores the value with
// the cluster so that nodes can be started again later.
package config
