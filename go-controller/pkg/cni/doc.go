// Package cni is shared by the two parts of pod attachment: the executable that the
// container runtime calls (cni/shim) and the server in the node process (cni/node). It
// defines the request that is sent over the unix socket, the names and external_ids of a
// pod's port, the network configuration file and the result.
//
// The package performs no I/O. The names are derived only from sandbox and interface, so
// that DEL finds what ADD created, whichever process was restarted in between.
package cni
