// Package ovntrace runs a complete OVN control plane for tests, consisting of northbound and southbound databases
// and ovn-northd, and traces packets with ovn-trace. It needs the package ovn-central and no privileges: there is
// no datapath.
//
// Imported by tests only.
package ovntrace
