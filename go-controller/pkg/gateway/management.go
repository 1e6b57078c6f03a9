package gateway

import (
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Management is the configuration of the management port.
type Management struct {
	MAC   string
	MTU   int // bytes
	Addrs []netip.Prefix
}

// ManagementPort plans the management port for a node's pod subnets, which must
// not be empty. Its MAC address is derived from the first one.
func ManagementPort(subnets []netip.Prefix, mtu int) Management {
	m := Management{MAC: topology.MACOf(topology.ManagementAddr(subnets[0])), MTU: mtu}
	for _, s := range subnets {
		m.Addrs = append(m.Addrs, netip.PrefixFrom(topology.ManagementAddr(s), s.Bits()))
	}
	return m
}

// geneveOverhead is the size that a tunnel adds to a packet, in addition to the outer IP header:
// UDP, Geneve with OVN's option, and the inner Ethernet header.
const geneveOverhead = 8 + 8 + 8 + 14

// UplinkMTU returns the minimum MTU of an uplink that carries pod packets of podMTU
// bytes in tunnels of family f.
func UplinkMTU(podMTU int, f topology.Family) int {
	if f == topology.IPv4 {
		return podMTU + geneveOverhead + 20
	}
	return podMTU + geneveOverhead + 40
}

// Routes plans the routes through the management port: to the pods of the cluster,
// the services and the node-local virtual address, for each family in which the node has
// pods.
func Routes(subnets, cluster, services, masquerade []netip.Prefix) map[host.Route]host.Hop {
	routes := map[host.Route]host.Hop{}
	for _, s := range subnets {
		f := topology.FamilyOf(s.Addr())
		hop := host.Hop{Via: topology.RouterAddr(s)}
		add := func(p netip.Prefix) {
			if topology.FamilyOf(p.Addr()) == f {
				routes[host.Route{Dst: p.Masked(), Link: topology.ManagementPort}] = hop
			}
		}
		for _, p := range cluster {
			add(p)
		}
		for _, p := range services {
			add(p)
		}
		for _, p := range masquerade {
			add(topology.HostPrefix(topology.LocalServiceAddr(p)))
		}
	}
	return routes
}
