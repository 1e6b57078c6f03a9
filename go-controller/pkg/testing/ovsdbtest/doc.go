// Package ovsdbtest runs real ovsdb-servers for tests: the northbound database on a unix socket, over TCP or TLS,
// or as a RAFT cluster. It can kill and restart a server, and run ovn-nbctl against it. It needs the packages
// ovn-central and openvswitch-common and no privileges.
//
// Every server is a child process of the test with its own directory; both are removed when the test ends. Imported
// by tests only.
package ovsdbtest
