// Package link is the driver of network links: veth pairs, MTU, sysctls,
// offloads, and the silence of links that the userspace datapath of OVS reads.
// Every function is idempotent and writes nothing when nothing differs.
//
// Functions act in the network namespace of the calling thread; Inside moves
// into another one. Subscriptions (Watch) stay in the namespace they were made
// in.
//
// Callers: the node's gateway and management port, the CNI server, clean-up.
package link
