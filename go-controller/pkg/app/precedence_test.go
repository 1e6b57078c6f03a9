package app

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The addresses of the test, IPv4 first. The pod is on node a; other is on node b.
var (
	podAddrs     = addrsOf("10.244.0.3", "fd00:10:244:1::3")
	otherAddrs   = addrsOf("10.244.1.3", "fd00:10:244:2::3")
	gatewayAddrs = addrsOf("172.18.0.51", "fc00:f853:ccd:e793::51")
	egressAddrs  = addrsOf("172.18.0.90", "fc00:f853:ccd:e793::90")
	outsideAddrs = addrsOf("8.8.8.8", "2001:db8::8")
)

const (
	podMAC     = "0a:58:0a:f4:00:03"
	gatewayMAC = "02:42:00:00:00:51"
	routerMAC  = "02:42:00:00:00:01" // of the nodes' default gateway
)

func addrsOf(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixesOf(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// precedence has two nodes in a real OVN control plane.
type precedence struct {
	t      *testing.T
	ovn    *ovntrace.OVN
	writer *ovsdb.Writer
	nodes  []topology.Node
	config externalroute.Config
}

func newPrecedence(t *testing.T, mode topology.GatewayMode, disableSNAT bool, change ...func(i int, n *topology.Node)) *precedence {
	t.Helper()
	p := &precedence{t: t, ovn: ovntrace.Start(t)}
	cluster := prefixesOf("10.244.0.0/16", "fd00:10:244::/48")
	p.config = externalroute.Config{Cluster: cluster, Join: prefixesOf("100.64.0.0/16", "fd98::/64"), DisableSNATMultipleGWs: disableSNAT}
	base := network.Config{JoinSubnets: prefixesOf("100.64.0.0/16", "fd98::/64"), DisableSNATMultipleGWs: disableSNAT,
		ClusterSubnets: []network.ClusterSubnet{{CIDR: cluster[0], HostPrefixLen: 24}, {CIDR: cluster[1], HostPrefixLen: 64}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: p.ovn.NB.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	p.writer = ovsdb.NewWriter(client)
	assigned := map[string]network.Assignment{}
	for i, name := range []string{"a", "b"} {
		addrs := prefixesOf(fmt.Sprintf("172.18.0.%d/16", i+2), fmt.Sprintf("fc00:f853:ccd:e793::%d/64", i+2))
		n := topology.Node{
			Name: name, Chassis: "chassis-" + name, ManagementMAC: fmt.Sprintf("0a:58:0a:f4:%02x:02", i), Primary: addrs,
			Subnets: prefixesOf(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i+1)),
			Join:    prefixesOf(fmt.Sprintf("100.64.0.%d/16", i+2), fmt.Sprintf("fd98::%d/64", i+2)),
			Gateway: topology.Gateway{Mode: mode, InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("02:42:ac:12:00:%02x", i+2),
				Addrs: addrs, NextHops: addrsOf("172.18.0.1", "fc00:f853:ccd:e793::1")},
		}
		for _, f := range change {
			f(i, &n)
		}
		p.nodes = append(p.nodes, n)
		assigned[name] = network.Assignment{Subnets: n.Subnets, Join: n.Join}
		p.ovn.Chassis(n.Chassis, addrs[0].Addr().String())
	}
	if _, err := p.writer.Apply(t.Context(), network.Owner(""), network.ClusterRows(base, assigned)); err != nil {
		t.Fatal(err)
	}
	for _, n := range p.nodes {
		if _, err := p.writer.Apply(t.Context(), network.Owner(n.Name), network.NodeRows(base, n)); err != nil {
			t.Fatal(err)
		}
	}
	p.writePolicies()
	p.ovn.NB.Nbctl("lsp-add", "a", "pod", "--", "lsp-set-addresses", "pod", fmt.Sprintf("%s %s %s", podMAC, podAddrs[0], podAddrs[1]),
		"--", "lsp-add", "b", "other", "--", "lsp-set-addresses", "other", fmt.Sprintf("0a:58:0a:f4:01:03 %s %s", otherAddrs[0], otherAddrs[1]))
	p.ovn.Sync()
	p.ovn.Bind("pod", "chassis-a")
	p.ovn.Bind("other", "chassis-b")
	for _, n := range p.nodes {
		p.ovn.Bind("cr-"+topology.RouterToSwitch(n.Name), n.Chassis)
		p.ovn.Bind(topology.ManagementLSP(n.Name), n.Chassis)
		for i := range topology.Families {
			p.learn(n, topology.GatewayToExternal(n.Name), n.Gateway.NextHops[i], routerMAC)
			p.learn(n, topology.GatewayToExternal(n.Name), gatewayAddrs[i], gatewayMAC)
		}
	}
	return p
}

// writePolicies writes the policies that EgressIP and EgressService share.
func (p *precedence) writePolicies() {
	p.t.Helper()
	n := noreroute.Network{Cluster: p.config.Cluster, Join: prefixesOf("100.64.0.0/16", "fd98::/64"), NodeLocal: labNodeLocal}
	for _, s := range []struct {
		set   noreroute.Set
		addrs []netip.Addr
	}{{noreroute.EgressIPPods, podAddrs}, {noreroute.EgressServicePods, podAddrs}} {
		if _, err := p.writer.Apply(p.t.Context(), s.set.Owner(), noreroute.SetRows(n, s.set, s.addrs)); err != nil {
			p.t.Fatal(err)
		}
	}
	if _, err := p.writer.Apply(p.t.Context(), noreroute.NodeIPs.Owner(), noreroute.NodeRows(n, nodeAddrs(p.nodes))); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.writer.Apply(p.t.Context(), noreroute.PolicyOwner, noreroute.PolicyRows(n)); err != nil {
		p.t.Fatal(err)
	}
}

// learn makes the gateway router of a node know the MAC address of a neighbour.
func (p *precedence) learn(n topology.Node, port string, neighbour netip.Addr, mac string) {
	datapath := strings.TrimSpace(p.ovn.Sbctl("--bare", "--columns=_uuid", "find", "Datapath_Binding",
		"external_ids:name="+topology.GatewayRouter(n.Name)))
	p.ovn.Sbctl("create", "MAC_Binding", "logical_port="+port,
		fmt.Sprintf("ip=%q", neighbour.String()), fmt.Sprintf("mac=%q", mac), "datapath="+datapath)
}

// gateways gives the pod an external gateway, or removes it.
func (p *precedence) gateways(hop *v1.HopOptions) {
	p.t.Helper()
	p.gatewaysAt(gatewayAddrs, hop)
}

// gatewaysAt does the same with a gateway at these addresses.
func (p *precedence) gatewaysAt(addrs []netip.Addr, hop *v1.HopOptions) {
	p.t.Helper()
	snap := externalroute.Snapshot{Namespaces: []externalroute.Namespace{{Name: "ns"}},
		Pods: func(string) []externalroute.GatewayPod { return nil }}
	if hop != nil {
		policy := &v1.AdminPolicyBasedExternalRoute{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		for _, a := range addrs {
			policy.Spec.NextHops.Static = append(policy.Spec.NextHops.Static, v1.StaticHop{IP: a.String(), HopOptions: *hop})
		}
		snap.Policies = append(snap.Policies, policy)
	}
	node := externalroute.NodeSnapshot{Node: p.nodes[0], Pods: []externalroute.Pod{{Key: "ns/pod", Namespace: "ns", Addrs: podAddrs}},
		Rerouted: map[netip.Addr]bool{podAddrs[0]: true, podAddrs[1]: true}}
	rows := externalroute.NodeRows(p.config, externalroute.Decide(p.config, snap), node)
	if _, err := p.writer.Apply(p.t.Context(), externalroute.Owner("a"), rows); err != nil {
		p.t.Fatal(err)
	}
}

// egressIP writes the rows of an EgressIP that selects the pod, on an egress node.
func (p *precedence) egressIP(on topology.Node) {
	p.t.Helper()
	for i, f := range topology.Families {
		p.ovn.NB.Nbctl("lr-policy-add", topology.ClusterRouter, "100", fmt.Sprintf("%s.src == %s", f.Match(), podAddrs[i]),
			"reroute", on.Join[i].Addr().String(),
			"--", "lr-nat-add", topology.GatewayRouter(on.Name), "snat", egressAddrs[i].String(), podAddrs[i].String())
	}
}

// egressService writes the policies of an EgressService with the pod as endpoint
// and node b as host.
func (p *precedence) egressService() {
	p.t.Helper()
	for i, f := range topology.Families {
		p.ovn.NB.Nbctl("lr-policy-add", topology.ClusterRouter, "101", fmt.Sprintf("%s.src == %s", f.Match(), podAddrs[i]),
			"reroute", p.nodes[1].ManagementAddrs()[i].String())
	}
}

// expect looks for words in the trace of a packet of the pod, in their order, where MATCH stands
// for the name of the family in OVN, EGRESS for the egress IP and NODE for the address of node a.
func (p *precedence) expect(what string, to []netip.Addr, words ...string) {
	p.t.Helper()
	for i, f := range topology.Families {
		trace := p.ovn.Trace("a", fmt.Sprintf(
			`inport == "pod" && eth.src == %s && eth.dst == %s && %[3]s.src == %[4]s && %[3]s.dst == %[5]s && ip.ttl == 64 && tcp && tcp.src == 40000 && tcp.dst == 80`,
			podMAC, topology.MACOf(topology.RouterAddr(p.nodes[0].Subnets[0])), f.Match(), podAddrs[i], to[i]), "--minimal", "--ct", "new")
		rest := trace
		for _, word := range words {
			word = strings.NewReplacer("MATCH", f.Match(), "EGRESS", egressAddrs[i].String(), "NODE", p.nodes[0].Primary[i].Addr().String()).Replace(word)
			if not, absent := strings.CutPrefix(word, "!"); absent {
				if strings.Contains(trace, not) {
					p.t.Errorf("%s, %s: there is %q in\n%s", what, f, not, trace)
				}
				continue
			}
			_, after, ok := strings.Cut(rest, word)
			if !ok {
				p.t.Errorf("%s, %s: no %q at its place in\n%s", what, f, word, trace)
				break
			}
			rest = after
		}
	}
}

// untranslated is the mark without which the bridge drops packets with a pod's address.
const untranslated = "pkt.mark = 1010"

// TestExternalGatewaysComeFirst traces packets of a pod that is selected by an EgressIP, an
// EgressService and an AdminPolicyBasedExternalRoute.
func TestExternalGatewaysComeFirst(t *testing.T) {
	toGateway := "eth.dst = " + gatewayMAC
	for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
		t.Run(string(mode), func(t *testing.T) {
			p := newPrecedence(t, mode, false)
			p.egressIP(p.nodes[1])
			p.expect("EgressIP alone", outsideAddrs, "eth.dst = "+routerMAC, "ct_snat(MATCH.src=EGRESS)", `output("breth0_b")`)
			p.gateways(&v1.HopOptions{})
			p.expect("EgressIP on another node", outsideAddrs, toGateway, "ct_snat(MATCH.src=NODE)", `output("breth0_a")`, "!"+untranslated)
			p.expect("a pod of the cluster", otherAddrs, `output("other")`, "!ct_snat")
			p.gateways(&v1.HopOptions{SkipHostSNAT: true})
			p.expect("own address", outsideAddrs, untranslated, toGateway, `output("breth0_a")`, "!ct_snat")
			p.gateways(nil)
			p.expect("EgressIP alone again", outsideAddrs, "eth.dst = "+routerMAC, "ct_snat(MATCH.src=EGRESS)", `output("breth0_b")`)

			p.egressService()
			p.expect("EgressService", outsideAddrs, `output("k8s-b")`, "!ct_snat")
			p.gateways(&v1.HopOptions{})
			p.expect("EgressService and EgressIP", outsideAddrs, toGateway, "ct_snat(MATCH.src=NODE)", `output("breth0_a")`, "!"+untranslated)
		})
	}
}

// TestGatewaysDown: OVN itself removes gateways from its routes if their sessions are down. Packets
// that then take the usual route must not leave with the pod's address, even before everything else
// is updated.
func TestGatewaysDown(t *testing.T) {
	for _, disable := range []bool{false, true} {
		p := newPrecedence(t, topology.GatewayShared, disable)
		p.gateways(&v1.HopOptions{SkipHostSNAT: true, BFDEnabled: true})
		set := func(status string) {
			for range 2 { // ovn-controller writes what northd copies
				for _, id := range strings.Fields(p.ovn.Sbctl("--bare", "--columns=_uuid", "list", "bfd")) {
					p.ovn.Sbctl("set", "bfd", id, "status="+status)
				}
				p.ovn.Sync()
			}
		}
		set("up")
		p.expect("up", outsideAddrs, untranslated, "eth.dst = "+gatewayMAC, `output("breth0_a")`, "!ct_snat")
		set("down")
		p.expect("down", outsideAddrs, "eth.dst = "+routerMAC, `output("breth0_a")`, "!"+untranslated)
	}
}

// TestEgressIPOnOwnNode: if the pod's own node has the egress IP, the gateways see the pod with
// that address, unless the pod keeps its own.
func TestEgressIPOnOwnNode(t *testing.T) {
	toGateway := "eth.dst = " + gatewayMAC
	for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
		t.Run(string(mode), func(t *testing.T) {
			p := newPrecedence(t, mode, false)
			p.egressIP(p.nodes[0])
			p.gateways(&v1.HopOptions{})
			p.expect("translated", outsideAddrs, toGateway, "ct_snat(MATCH.src=EGRESS)", `output("breth0_a")`, "!"+untranslated)
			p.gateways(&v1.HopOptions{SkipHostSNAT: true})
			p.expect("own address", outsideAddrs, untranslated, toGateway, `output("breth0_a")`, "!ct_snat")
		})
		t.Run(string(mode)+" without translation", func(t *testing.T) {
			p := newPrecedence(t, mode, true)
			p.egressIP(p.nodes[0])
			p.gateways(&v1.HopOptions{})
			p.expect("own address", outsideAddrs, untranslated, toGateway, `output("breth0_a")`, "!ct_snat")
		})
	}
}
