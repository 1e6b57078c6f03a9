// Package ovsdbraw is a minimal client of an OVSDB server: JSON-RPC over a unix socket, without a schema and
// without a cache. Tests compare clients with a cache to it, and use it to read and copy whole databases. Imported
// by tests and measurements only.
package ovsdbraw
