package pod

import (
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/nbshow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func TestRows(t *testing.T) {
	full := topology.Node{
		Name: "ovn-worker", Subnets: dual, Join: prefixes("100.64.0.4/16", "fd98::4/64"), Chassis: "c0ffee",
		Gateway: topology.Gateway{
			Mode: topology.GatewayShared, InterfaceID: "breth0_ovn-worker", MAC: "02:42:ac:12:00:03",
			Addrs: prefixes("172.18.0.3/16", "fc00:f853:ccd:e793::3/64"),
		},
	}
	bare := topology.Node{Name: full.Name, Subnets: dual}
	addrs := prefixes("10.244.1.3/24", "fd00:10:244:2::3/64")
	for _, tt := range []struct {
		name   string
		config Config
		node   topology.Node
		addrs  []netip.Prefix
	}{
		{"dual", Config{}, full, addrs},
		{"ipv6", Config{}, full, addrs[1:]},
		{"nat-per-pod", Config{DisableSNATMultipleGWs: true}, full, addrs},
		{"nat-per-pod-no-gateway-yet", Config{DisableSNATMultipleGWs: true}, bare, addrs},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows := Rows(tt.config, Pod{
				Namespace: "default", Name: "web", UID: "u-i-d", Network: Network(tt.addrs, tt.node.Subnets),
			}, tt.node)
			// The parents of the rows, for the printer.
			rows = append(rows,
				nb.Row{ID: "s", Model: &nbdb.LogicalSwitch{Name: "ovn-worker"}},
				nb.Row{ID: "r", Model: &nbdb.LogicalRouter{Name: "GR_ovn-worker"}})
			golden.Check(t, tt.name, nbshow.Text(rows))
		})
	}
}

func TestNetwork(t *testing.T) {
	got := Network(prefixes("10.244.1.3/24", "fd00:10:244:2::3/64"), dual)
	if got.MAC != "0a:58:0a:f4:01:03" || got.Gateways[0].String() != "10.244.1.1" || got.Gateways[1].String() != "fd00:10:244:2::1" {
		t.Errorf("network of a pod: %+v", got)
	}
}
