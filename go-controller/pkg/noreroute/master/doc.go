// Package master applies the policies and address sets of package noreroute to
// the northbound database. Caller: pkg/app.
package master
