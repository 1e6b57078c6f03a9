// Package node connects a node to the cluster network and keeps it connected: the
// settings of ovn-controller, br-int, the external bridge with the uplink moved
// into it, the management port, routes, iptables rules, base flows and the node's
// annotations. There is one path for the first start, for a restart and for
// repair: Reconcile goes through the same steps each time, does what is
// possible and writes only differences.
//
// Invariants: the bridge mapping that makes ovn-controller attach the gateway
// router is written only once the external bridge has its early flows;
// addresses are on the bridge before they are taken from the uplink; an uplink
// is not changed before ovs-vswitchd has added it as a port.
//
// Callers: pkg/app, which also calls Cleanup for --cleanup-node.
package node
