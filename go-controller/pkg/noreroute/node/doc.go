// Package node does for a host's kernel what the policies of package noreroute do in OVN:
// it marks traffic from pods to hosts, so that no egress feature translates it.
//
// With the kernel datapath of Open vSwitch, OVN's own mark is sufficient. The userspace
// datapath passes packets to the kernel without it; there the kernel has a rule for each
// address of a host.
//
// Caller: pkg/app, in local gateway mode, where such packets pass through the kernel.
package node
