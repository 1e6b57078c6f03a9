// Package ovsdbraw is a bare client of an OVSDB server: JSON-RPC over a unix socket,
// without a schema and without a cache. It is what a client with a cache is compared
// with, and it reads and copies whole databases. Imported by tests and by measurements
// only.
package ovsdbraw
