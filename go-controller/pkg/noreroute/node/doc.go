// Package node does for a host's kernel what the policies of package noreroute do in
// OVN: it marks what pods send to hosts, so that no egress feature translates it.
//
// OVN's own mark does that where the switch and the kernel are one. The userspace
// datapath of Open vSwitch hands packets over without it; there the kernel has a
// rule for each address of a host.
//
// Caller: pkg/app, in local gateway mode, where such packets pass the kernel.
package node
