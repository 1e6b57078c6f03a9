package app

import (
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestNothingInsideGoesToGateways traces packets of a pod with external gateways to other nodes,
// and so to the API server, and its replies to routers that stand for clients of Services: none of
// them go to the gateways.
func TestNothingInsideGoesToGateways(t *testing.T) {
	toGateway := "eth.dst = " + gatewayMAC
	for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
		t.Run(string(mode), func(t *testing.T) {
			p := newPrecedence(t, mode, false)
			nodes, routers, own := []netip.Addr{}, []netip.Addr{}, []netip.Addr{}
			for i := range topology.Families {
				nodes = append(nodes, p.nodes[1].Primary[i].Addr())
				routers = append(routers, p.nodes[1].Join[i].Addr())
				own = append(own, p.nodes[0].Primary[i].Addr())
			}
			for _, of := range []func(){func() {}, func() { p.egressIP(p.nodes[1]) }, func() { p.egressService() }} {
				of()
				for _, hop := range []v1.HopOptions{{}, {SkipHostSNAT: true}} {
					p.gateways(&hop)
					p.expect("outside", outsideAddrs, toGateway, `output("breth0_a")`)
					p.expect("another node", nodes, `output("k8s-a")`, "!"+toGateway, "!ct_snat")
					p.expect("its own node", own, `output("k8s-a")`, "!"+toGateway, "!ct_snat")
					p.expect("a router", routers, "!"+toGateway)
				}
			}
		})
	}
}
