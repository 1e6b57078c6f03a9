// Package ovs is the driver for the local Open vSwitch database: bridges, ports, interface settings
// and the external_ids that ovn-controller reads. It speaks OVSDB over the local unix socket and
// reconnects by itself.
//
// Invariants: every Ensure is idempotent and writes nothing if nothing differs; columns and keys
// that a caller does not name are kept, because ovn-controller and the administrator write to the
// same rows. Nothing here waits for ovs-vswitchd except Sync, OFPort and WaitInstalled.
//
// Callers: the node's gateway and management port, the CNI server, cleanup.
package ovs
