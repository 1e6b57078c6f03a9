// Package ovntrace runs a whole OVN control plane for tests, northbound and
// southbound databases and ovn-northd, and asks ovn-trace where a packet goes.
// It needs the package ovn-central and no privileges: there is no datapath.
//
// Imported by tests only.
package ovntrace
