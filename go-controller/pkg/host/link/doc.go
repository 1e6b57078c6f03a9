// Package link is the driver for network links: veth pairs, MTU, sysctls, offloads, and muting
// links that the userspace datapath of OVS reads. Every function is idempotent and writes nothing
// if nothing differs.
//
// Functions act in the network namespace of the calling thread; Inside enters another one.
// Subscriptions (Watch) stay in the namespace in which they were made.
//
// Callers: the node's gateway and management port, the CNI server, cleanup.
package link
