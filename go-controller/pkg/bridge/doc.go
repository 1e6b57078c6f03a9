// Package bridge plans the OpenFlow flows of a node's external bridge, the one with the uplink
// (breth0). Two owners share it: the host at port LOCAL and OVN behind the patch port, with one MAC
// address and one IP address. The flows remember in conntrack who opened a connection and hand each
// reply back to that owner; unsolicited packets go to the host.
//
// The package is pure. Flows refer to ports by the symbols Uplink, Patch and Local, because port
// numbers are known only once ovs-vswitchd has assigned them and may change when Open vSwitch
// restarts; Ports.Resolve inserts the numbers. Invariants: no flow ever translates an address to
// itself, no flow of one family depends on the other, and packets to or from OVN always match a
// flow that names the port: NORMAL does not include the patch port.
//
// Callers: bridge/node installs the flows, gateway/node contributes the results of Flows,
// CommonFlows and InitialFlows, the service packages contribute flows of their own with the same
// symbols.
package bridge
