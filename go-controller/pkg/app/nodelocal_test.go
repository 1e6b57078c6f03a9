package app

import (
	"net/netip"
	"strings"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// labNodeLocal are the addresses that pods of the tests reach through their own node.
var labNodeLocal = noreroute.NodeLocal(prefixesOf("fd00:ec2::254/128", "168.63.129.16/32", "fd20:ce::254/128"), prefixesOf("169.254.169.0/29"))

// TestNodeLocal traces packets that pods of every egress feature send to addresses that are a
// different machine on each node, such as that of a cloud's metadata: they leave by the pod's own
// node, as those of any other pod do, and with the address of that node.
func TestNodeLocal(t *testing.T) {
	metadata := []struct {
		what string
		to   []netip.Addr
	}{
		{"metadata", addrsOf("169.254.169.254", "fd00:ec2::254")},
		{"another metadata address", addrsOf("168.63.129.16", "fd20:ce::254")},
		{"link-local", addrsOf("169.254.10.20", "fe80:1::a9fe:a9fe")},
	}
	for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
		t.Run(string(mode), func(t *testing.T) {
			p := newPrecedence(t, mode, false)
			stays := []string{`output("breth0_a")`, "!" + `output("breth0_b")`, "!" + `output("k8s-b")`}
			if mode == topology.GatewayLocal {
				stays = []string{`output("k8s-a")`, "!" + `output("breth0_b")`, "!" + `output("k8s-b")`}
			}
			marked := append([]string{"pkt.mark = 1008"}, stays...)
			expect := func(what string, words ...string) {
				t.Helper()
				for _, m := range metadata {
					p.expect(what+": "+m.what, m.to, words...)
				}
			}
			expect("no feature", stays...)
			p.egressIP(p.nodes[1])
			expect("EgressIP", marked...)
			p.egressService()
			expect("EgressService and EgressIP", marked...)
			p.expect("outside", outsideAddrs, `output("k8s-b")`)
			for _, hop := range []v1.HopOptions{{}, {SkipHostSNAT: true}} {
				p.gateways(&hop)
				expect("external gateways", `output("k8s-a")`, "!eth.dst = "+gatewayMAC)
				p.expect("outside", outsideAddrs, "eth.dst = "+gatewayMAC)
			}
			p.gateways(nil)
			expect("without the gateways", marked...)
		})
	}
	t.Run("IPv6 without a router", func(t *testing.T) {
		l := newTracing(t, topology.GatewayShared)
		l.noReroute(webAddrs(0), nil)
		l.serve("fc00:f853:ccd:e793::33")
		if got := l.send(0, "fe80::a9fe:a9fe"); strings.Contains(got, "breth0") {
			t.Errorf("a link-local address is reached by %s", got)
		}
	})
	t.Run("EgressIP on the pod's own node", func(t *testing.T) {
		p := newPrecedence(t, topology.GatewayShared, false)
		p.egressIP(p.nodes[0])
		for _, m := range metadata {
			// The mark makes the bridge translate to the address of the node.
			p.expect(m.what, m.to, "pkt.mark = 1008", `output("breth0_a")`)
		}
	})
}
