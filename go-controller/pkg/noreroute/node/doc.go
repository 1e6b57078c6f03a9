// Package node does for a host's kernel what the policies of package noreroute do in OVN:
// it marks traffic from pods to hosts, so that no egress feature translates it.
//
// With the kernel datapath of Open vSwitch, OVN's own mark is sufficient, except for traffic to the pods' own node: the
// policies that lead it there set none. The userspace datapath passes all packets to the kernel without a mark; there the
// kernel has a rule for each address of a host, if packets to other hosts pass through the kernel.
//
// Caller: pkg/app.
package node
