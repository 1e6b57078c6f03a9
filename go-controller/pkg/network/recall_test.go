package network_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Recall returns the node that its rows were planned from.
func TestRecall(t *testing.T) {
	full := topology.Node{
		Name: "n1", Chassis: "c1", ManagementMAC: "0a:58:0a:f4:01:02",
		Subnets: []netip.Prefix{pfx("10.244.1.0/24"), pfx("fd00:10:244:2::/64")},
		Join:    []netip.Prefix{pfx("100.64.0.3/16"), pfx("fd98::3/64")},
		Gateway: topology.Gateway{Mode: topology.GatewayLocal, InterfaceID: "breth0_n1", MAC: "02:42:ac:12:00:03", VLAN: 7,
			Addrs:    []netip.Prefix{pfx("172.18.0.3/16"), pfx("fc00::3/64")},
			NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("fc00::1")}},
	}
	shared := full
	shared.Gateway.Mode, shared.Gateway.VLAN = topology.GatewayShared, 0
	second := full
	second.Gateway.External = topology.ExternalAttachment{InterfaceID: "breth1_n1", MAC: "02:42:c0:a8:32:03",
		Addrs: []netip.Prefix{pfx("192.168.50.3/24"), pfx("fd00:50::3/64")}}
	bare := topology.Node{Name: "n1", ManagementMAC: "0a:58:0a:f4:01:02", Subnets: full.Subnets}
	for name, n := range map[string]topology.Node{"local": full, "shared": shared, "second uplink": second, "no gateway": bare} {
		if got := network.Recall("n1", network.NodeRows(config(dual), n)); !reflect.DeepEqual(got, n) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, n)
		}
	}
	if got := network.Recall("n1", nil); !reflect.DeepEqual(got, topology.Node{Name: "n1"}) {
		t.Errorf("no rows say %+v", got)
	}
	// Broken rows are ignored and cause no panic.
	network.Recall("n1", []nb.Row{
		{Model: &nbdb.LogicalRouterPort{Name: "rtos-n1", Networks: []string{"", "10.0.0.0/99", "::ffff:10.0.0.1/120"}}},
		{Model: &nbdb.LogicalSwitchPort{Name: "k8s-n1", Addresses: []string{""}}},
		{Model: &nbdb.LogicalRouterStaticRoute{IPPrefix: "x", Nexthop: ""}},
	})
}
