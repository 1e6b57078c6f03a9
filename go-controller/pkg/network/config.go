package network

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature is the owner feature of the rows planned here.
const Feature = "network"

// ClusterSubnet is a range of pod addresses, divided into one subnet per node.
type ClusterSubnet struct {
	CIDR netip.Prefix
	// HostPrefixLen is the prefix length of a node's subnet.
	HostPrefixLen int
}

// Config is the part of the configuration that the base network depends on.
type Config struct {
	// ClusterSubnets are the pod address ranges in order of preference. Their
	// families are the families of the cluster.
	ClusterSubnets []ClusterSubnet
	// JoinSubnets hold the addresses of the routers on the join switch: one for
	// each family of the cluster, others are ignored.
	JoinSubnets []netip.Prefix
	// ServiceCIDRs are the ranges of cluster addresses of Services; those of other families are
	// ignored.
	ServiceCIDRs []netip.Prefix
	// DisableSNATMultipleGWs leaves source NAT of pod addresses on the gateway routers to
	// the pods' own rows.
	DisableSNATMultipleGWs bool
	// GatewayMTU, in bytes, makes gateway routers reply to packets that do not fit into a
	// tunnel, on nodes whose datapath can compare packet lengths; 0: disabled.
	GatewayMTU int
}

// Owner returns the owner of the rows of a node; for the empty name, of the cluster.
func Owner(node string) nb.Owner { return nb.Owner{Feature: Feature, Object: node} }

// families returns the families of the cluster in the order of its subnets.
func (c Config) families() []topology.Family {
	var fams []topology.Family
	for _, s := range c.ClusterSubnets {
		if f := topology.FamilyOf(s.CIDR.Addr()); !slices.Contains(fams, f) {
			fams = append(fams, f)
		}
	}
	return fams
}

// joinSubnet returns the join subnet of a family.
func (c Config) joinSubnet(f topology.Family) netip.Prefix {
	p, _ := topology.PrefixOf(f, c.JoinSubnets)
	return p.Masked()
}

// clusterRouterJoin returns the addresses of the cluster router on the join
// switch: the first of each join subnet.
func (c Config) clusterRouterJoin() []netip.Prefix {
	var out []netip.Prefix
	for _, f := range topology.Families {
		if p := c.joinSubnet(f); slices.Contains(c.families(), f) && p.IsValid() {
			out = append(out, netip.PrefixFrom(topology.NthAddr(p, 1), p.Bits()))
		}
	}
	return out
}

// macOf returns the MAC address of a port with these addresses. It is derived from the IPv4
// address or, without one, from the first address.
func macOf(addrs []netip.Prefix) string {
	if p, ok := topology.PrefixOf(topology.IPv4, addrs); ok {
		return topology.MACOf(p.Addr())
	}
	return topology.MACOf(addrs[0].Addr())
}
