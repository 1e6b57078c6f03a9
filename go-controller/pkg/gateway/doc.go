// Package gateway plans the node side of the cluster network apart from flows:
// the addresses and routes that the external bridge takes over from the uplink, the management
// port with its routes, the iptables rules that every node has, and the annotations in which
// the node describes itself.
//
// The package is pure. Invariants: an address is planned for the bridge before
// it is taken from the uplink, and is recorded before either, so that no crash
// loses it; a node whose addresses and routes match the plan is left
// alone.
//
// Callers: gateway/node reads the host, applies the plans and watches; pkg/app
// declares Chains with the iptables driver.
package gateway
