// Package bridge plans the OpenFlow flows of a node's external bridge, the one
// that holds the uplink (breth0). Two owners share it: the host at port LOCAL
// and OVN behind the patch port, with one MAC address and one IP address. The
// flows remember in conntrack who talks and hand each reply back to its owner;
// what nobody asked for is the host's.
//
// The package is pure. Flows name ports by the symbols Uplink, Patch and Local,
// because their numbers are known only once ovs-vswitchd has given them and may
// change when Open vSwitch restarts; Ports.Resolve puts the numbers in.
// Invariants: no flow ever translates an address to itself, no flow of one family
// depends on the other, and what goes to OVN or comes from it does so by a flow
// that names the port: NORMAL does not lead there.
//
// Callers: bridge/node installs the flows, gateway/node contributes what Flows,
// Common and Early return, the service packages contribute flows of their own
// with the same symbols.
package bridge
