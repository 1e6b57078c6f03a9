package network_test

import (
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/nbshow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// family selects the families of a full example to keep.
type family func(topology.Family) bool

func dual(topology.Family) bool    { return true }
func only4(f topology.Family) bool { return f == topology.IPv4 }
func only6(f topology.Family) bool { return f == topology.IPv6 }
func pfx(s string) netip.Prefix    { return netip.MustParsePrefix(s) }
func keepPrefixes(k family, all ...string) (out []netip.Prefix) {
	for _, s := range all {
		if p := pfx(s); k(topology.FamilyOf(p.Addr())) {
			out = append(out, p)
		}
	}
	return out
}

func keepAddrs(k family, all ...string) (out []netip.Addr) {
	for _, s := range all {
		if a := netip.MustParseAddr(s); k(topology.FamilyOf(a)) {
			out = append(out, a)
		}
	}
	return out
}

func config(k family) network.Config {
	c := network.Config{JoinSubnets: keepPrefixes(k, "100.64.0.0/16", "fd98::/64"), ServiceCIDRs: []netip.Prefix{pfx("10.96.0.0/16"), pfx("fd00:10:96::/112")}}
	for _, s := range []network.ClusterSubnet{
		{CIDR: pfx("10.244.0.0/16"), HostPrefixLen: 24},
		{CIDR: pfx("fd00:10:244::/48"), HostPrefixLen: 64},
	} {
		if k(topology.FamilyOf(s.CIDR.Addr())) {
			c.ClusterSubnets = append(c.ClusterSubnets, s)
		}
	}
	return c
}

// worker returns the example node of the documents.
func worker(k family, mode topology.GatewayMode) topology.Node {
	addrs := keepPrefixes(k, "172.18.0.3/16", "fc00:f853:ccd:e793::3/64")
	n := topology.Node{
		Name:    "ovn-worker",
		Subnets: keepPrefixes(k, "10.244.1.0/24", "fd00:10:244:2::/64"),
		Join:    keepPrefixes(k, "100.64.0.4/16", "fd98::4/64"),
		Chassis: "c0ffee",
		Primary: addrs,
		Gateway: topology.Gateway{
			Mode:        mode,
			InterfaceID: "breth0_ovn-worker",
			MAC:         "02:42:ac:12:00:03",
			Addrs:       addrs,
			NextHops:    keepAddrs(k, "172.18.0.1", "fc00:f853:ccd:e793::1"),
		},
	}
	n.ManagementMAC = map[bool]string{true: "0a:58:0a:f4:01:02", false: "0a:58:00:00:00:02"}[k(topology.IPv4)]
	return n
}

// plan returns all rows of a cluster with one node.
func plan(c network.Config, n topology.Node) []nb.Row {
	rows := network.ClusterRows(c, map[string]network.Assignment{n.Name: {Subnets: n.Subnets, Join: n.Join}})
	return append(rows, network.NodeRows(c, n)...)
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name   string
		keep   family
		mode   topology.GatewayMode
		change func(*network.Config, *topology.Node)
	}{
		{"dual-local", dual, topology.GatewayLocal, nil},
		{"dual-shared", dual, topology.GatewayShared, nil},
		{"ipv4-local", only4, topology.GatewayLocal, nil},
		{"ipv4-shared", only4, topology.GatewayShared, nil},
		{"ipv6-local", only6, topology.GatewayLocal, nil},
		{"ipv6-shared", only6, topology.GatewayShared, nil},
		{"nat-per-pod", dual, topology.GatewayShared, func(c *network.Config, _ *topology.Node) {
			c.DisableSNATMultipleGWs = true
		}},
		{"vlan-mtu-two-hops-two-ranges", dual, topology.GatewayShared, func(c *network.Config, n *topology.Node) {
			c.GatewayMTU = 1400
			c.ClusterSubnets = append(c.ClusterSubnets, network.ClusterSubnet{CIDR: pfx("10.128.0.0/14"), HostPrefixLen: 23})
			n.Gateway.VLAN = 42
			n.Gateway.NextHops = append(n.Gateway.NextHops, netip.MustParseAddr("172.18.0.254"))
		}},
		{"second-uplink", dual, topology.GatewayShared, func(_ *network.Config, n *topology.Node) {
			n.Gateway.External = topology.ExternalAttachment{InterfaceID: "breth1_ovn-worker", MAC: "02:42:c0:a8:32:03",
				Addrs: keepPrefixes(dual, "192.168.50.3/24", "fd00:50::3/64")}
		}},
		{"second-uplink-without-next-hop", dual, topology.GatewayLocal, func(_ *network.Config, n *topology.Node) {
			n.Gateway.NextHops = nil
			n.Gateway.External = topology.ExternalAttachment{InterfaceID: "breth1_ovn-worker", MAC: "02:42:c0:a8:32:03",
				Addrs: keepPrefixes(only4, "192.168.50.3/24")}
		}},
		{"dual-shared", dual, topology.GatewayShared, func(c *network.Config, n *topology.Node) {
			c.GatewayMTU, n.NoPacketLengths = 1400, true
		}},
		{"known-subnets", dual, topology.GatewayShared, func(_ *network.Config, n *topology.Node) {
			*n = topology.Node{Name: n.Name, Subnets: n.Subnets, Join: n.Join}
		}},
		{"known-chassis", dual, topology.GatewayShared, func(_ *network.Config, n *topology.Node) {
			*n = topology.Node{Name: n.Name, Subnets: n.Subnets, Join: n.Join, Chassis: n.Chassis, Primary: n.Primary}
		}},
		{"known-nothing", dual, topology.GatewayShared, func(_ *network.Config, n *topology.Node) {
			*n = topology.Node{Name: n.Name, Chassis: n.Chassis, Gateway: n.Gateway}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, n := config(tt.keep), worker(tt.keep, tt.mode)
			if tt.change != nil {
				tt.change(&c, &n)
			}
			golden.Check(t, tt.name, nbshow.Text(plan(c, n)))
		})
	}
}

// A dual-stack cluster whose node has an address of one family only is planned
// for that family.
func TestPlanNodeWithoutIPv6Address(t *testing.T) {
	n := worker(dual, topology.GatewayShared)
	n.Primary, n.Gateway.Addrs, n.Gateway.NextHops = n.Primary[:1], n.Gateway.Addrs[:1], n.Gateway.NextHops[:1]
	golden.Check(t, "node-without-ipv6-address", nbshow.Text(plan(config(dual), n)))
}

func TestMissing(t *testing.T) {
	full := worker(dual, topology.GatewayLocal)
	for _, tt := range []struct {
		change func(*topology.Node)
		want   string
	}{
		{func(*topology.Node) {}, ""},
		{func(n *topology.Node) { n.Subnets = nil }, "subnets"},
		{func(n *topology.Node) { n.Chassis = "" }, "chassis"},
		{func(n *topology.Node) { n.Gateway = topology.Gateway{} }, "gateway"},
		{func(n *topology.Node) { n.Join, n.ManagementMAC = nil, "" }, "join address, management port"},
	} {
		n := full
		tt.change(&n)
		if got := network.Missing(n); got != tt.want {
			t.Errorf("Missing = %q, want %q", got, tt.want)
		}
	}
}
