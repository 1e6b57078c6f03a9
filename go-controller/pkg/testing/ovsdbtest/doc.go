// Package ovsdbtest runs real ovsdb-servers for tests: the northbound database
// on a unix socket, over tcp or TLS, or as a RAFT cluster; with ways to kill and
// restart a server, and to run ovn-nbctl against it. It needs the packages
// ovn-central and openvswitch-common and no privileges.
//
// Every server is a process of the test with its files in a directory of its
// own; both are gone when the test ends. Imported by tests only.
package ovsdbtest
