package app

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The network of the second uplink: an external gateway there, and another machine.
var (
	secondGateway = addrsOf("192.168.50.51", "fd00:50::51")
	secondMachine = addrsOf("192.168.50.99", "fd00:50::99")
)

const secondMAC = "02:42:00:00:50:51" // of the gateway there

// onSecond gives a node an uplink to that network.
func onSecond(i int, n *topology.Node) {
	n.Gateway.External = topology.ExternalAttachment{
		InterfaceID: "breth1_" + n.Name, MAC: fmt.Sprintf("02:42:c0:a8:32:%02x", i+2),
		Addrs: prefixesOf(fmt.Sprintf("192.168.50.%d/24", i+2), fmt.Sprintf("fd00:50::%d/64", i+2)),
	}
}

func newSecondUplink(t *testing.T, mode topology.GatewayMode, disableSNAT bool) *precedence {
	t.Helper()
	p := newPrecedence(t, mode, disableSNAT, onSecond)
	for _, n := range p.nodes {
		for i := range topology.Families {
			p.learn(n, topology.ExternalGatewayPort(n.Name), secondGateway[i], secondMAC)
			p.learn(n, topology.ExternalGatewayPort(n.Name), secondMachine[i], "02:42:00:00:50:99")
		}
	}
	return p
}

// TestSecondUplink: gateways on the network of the second uplink are reached through it, and no
// other packets leave through it, whatever their destination.
func TestSecondUplink(t *testing.T) {
	const byFirst, bySecond = `output("breth0_`, `output("breth1_`
	toGateway, toRouter := "eth.dst = "+secondMAC, "eth.dst = "+routerMAC
	for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
		t.Run(string(mode), func(t *testing.T) {
			p := newSecondUplink(t, mode, false)
			usual := []string{toRouter, "ct_snat(MATCH.src=NODE)", byFirst + `a")`, "!" + bySecond}
			if mode == topology.GatewayLocal {
				usual = []string{`output("k8s-a")`, "!" + bySecond}
			}
			p.expect("no gateway, outside", outsideAddrs, usual...)
			p.expect("no gateway, to the second network", secondMachine, usual...)
			p.expect("no gateway, to the gateway itself", secondGateway, usual...)
			p.expect("own node on the second network", addrsOf("192.168.50.2", "fd00:50::2"), `output("k8s-a")`, "!ct_snat")

			p.gatewaysAt(secondGateway, &v1.HopOptions{})
			through := []string{toGateway, "ct_snat(MATCH.src=NODE)", bySecond + `a")`, "!" + byFirst, "!" + untranslated}
			p.expect("outside", outsideAddrs, through...)
			p.expect("to the second network", secondMachine, through...)
			p.expect("own node on the second network, with a gateway", addrsOf("192.168.50.2", "fd00:50::2"), `output("k8s-a")`, "!ct_snat")
			p.gatewaysAt(secondGateway, &v1.HopOptions{SkipHostSNAT: true})
			p.expect("own address", outsideAddrs, untranslated, toGateway, bySecond+`a")`, "!ct_snat")
			p.gateways(&v1.HopOptions{})
			p.expect("a gateway on the first network", outsideAddrs, "eth.dst = "+gatewayMAC, "ct_snat(MATCH.src=NODE)", byFirst+`a")`, "!"+bySecond)

			p.gatewaysAt(nil, nil)
			p.expect("no gateway any more, to the second network", secondMachine, usual...)
			p.egressIP(p.nodes[1])
			p.expect("EgressIP, to the second network", secondMachine, toRouter, "ct_snat(MATCH.src=EGRESS)", byFirst+`b")`, "!"+bySecond)
			p.gatewaysAt(secondGateway, &v1.HopOptions{})
			p.expect("EgressIP and gateway", outsideAddrs, through...)
		})
	}
}

// TestSecondUplinkDown: while sessions are down, pods leave as if they had no gateway.
func TestSecondUplinkDown(t *testing.T) {
	p := newSecondUplink(t, topology.GatewayShared, true)
	p.gatewaysAt(secondGateway, &v1.HopOptions{BFDEnabled: true})
	for _, c := range []struct {
		status string
		want   []string
	}{
		{"up", []string{untranslated, "eth.dst = " + secondMAC, `output("breth1_a")`, "!ct_snat"}},
		{"down", []string{"eth.dst = " + routerMAC, `output("breth0_a")`, "!" + untranslated}},
	} {
		for range 2 { // ovn-controller writes what northd copies
			for _, id := range strings.Fields(p.ovn.Sbctl("--bare", "--columns=_uuid", "list", "bfd")) {
				p.ovn.Sbctl("set", "bfd", id, "status="+c.status)
			}
			p.ovn.Sync()
		}
		p.expect(c.status, outsideAddrs, c.want...)
	}
	if ports := p.ovn.NB.Nbctl("--bare", "--columns=logical_port", "list", "BFD"); strings.Count(ports, "exgw-rtoe-GR_a") != 2 {
		t.Errorf("sessions on %s", ports)
	}
}

// TestSecondUplinkInbound: packets from gateways to pods arrive, and the gateways' MAC addresses
// are learned.
func TestSecondUplinkInbound(t *testing.T) {
	p := newSecondUplink(t, topology.GatewayShared, false)
	p.gatewaysAt(append(addrsOf("192.168.50.61", "fd00:50::61"), secondGateway...), &v1.HopOptions{}) // replies have a choice
	mac := p.nodes[0].Gateway.External.MAC
	for i, f := range topology.Families {
		trace := p.ovn.Trace("exgw-ext_a", fmt.Sprintf(`inport == "breth1_a" && eth.src == %s && eth.dst == %s && %[3]s.src == %[4]s && `+
			`%[3]s.dst == %[5]s && ip.ttl == 64 && tcp && tcp.src == 40000 && tcp.dst == 80`, secondMAC, mac, f.Match(), outsideAddrs[i], podAddrs[i]), "--ct", "new")
		for _, want := range []string{"ct_label.ecmp_reply_eth = eth.src", `output to "rtoj-GR_a"`} {
			if !strings.Contains(trace, want) {
				t.Errorf("%s: no %q in\n%s", f, want, trace)
			}
		}
	}
	for what, packet := range map[string]string{
		"a request": fmt.Sprintf(`eth.dst == ff:ff:ff:ff:ff:ff && arp.op == 1 && arp.spa == 192.168.50.51 && arp.tpa == 192.168.50.51 && arp.sha == %[1]s && arp.tha == 00:00:00:00:00:00`, "02:42:00:00:50:52"),
		"an answer": fmt.Sprintf(`eth.dst == %s && arp.op == 2 && arp.spa == 192.168.50.51 && arp.tpa == 192.168.50.2 && arp.sha == %s && arp.tha == %[1]s`, mac, "02:42:00:00:50:52"),
	} {
		if trace := p.ovn.Trace("exgw-ext_a", `inport == "breth1_a" && eth.src == 02:42:00:00:50:52 && `+packet); !strings.Contains(trace, "put_arp(") {
			t.Errorf("the gateway's new address is not learnt from %s:\n%s", what, trace)
		}
	}
}
