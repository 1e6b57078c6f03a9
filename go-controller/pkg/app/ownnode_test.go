package app

import (
	"context"
	"net"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/gateway"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	noreroutenode "github.com/ovnkube/ovnkube/go-controller/pkg/noreroute/node"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	reservedsnapshot "github.com/ovnkube/ovnkube/go-controller/pkg/reserved/snapshot"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/routed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// marksOf returns the rules that mark what pods send to nodes, on a node whose kernel gets OVN's marks.
func marksOf(t *testing.T, addrs []netip.Prefix) host.Rules {
	t.Helper()
	cs := fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a",
		Annotations: map[string]string{kube.AnnotationPrimaryIfAddr: kube.FormatPrimaryIfAddr(addrs)}}})
	core := kube.NewInformers(cs)
	addresses, err := reservedsnapshot.New(reserved.Ranges{}, reservedsnapshot.Informers{
		Nodes: core.Core().V1().Nodes(), EndpointSlices: core.Discovery().V1().EndpointSlices()})
	if err != nil {
		t.Fatal(err)
	}
	chains := hostfake.NewChains(noreroute.Chains(topology.Families))
	c, err := noreroutenode.New(noreroutenode.Deps{Node: "a", Addresses: addresses, Chains: chains, Families: topology.Families,
		MarksLost: func(context.Context) (bool, error) { return false, nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fakeapi.Start(ctx, t, cs, core)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	eventually.Receive(t, "the marks", c.Synced())
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	core.Shutdown()
	rules := host.Rules{}
	for _, chain := range noreroute.Chains(topology.Families) {
		rules[chain.ChainKey] = chains.Rules(chain.ChainKey)
	}
	return rules
}

// TestHostPortOfOwnNode: a pod calls the host port of another pod at their node's address. OVN leads the packet to the node
// without a mark, and the kernel sends it on to the other pod, with the address of the management port, whatever egress
// address the first pod has on this node.
func TestHostPortOfOwnNode(t *testing.T) {
	a := netip.MustParseAddr
	families := []struct{ pod, server, node, port string }{
		{"10.244.1.3", "10.244.1.9", "192.0.2.1", "10.244.1.2"}, {"fd00:10:244:2::3", "fd00:10:244:2::9", "2001:db8::1", "fd00:10:244:2::2"},
	}
	marks := marksOf(t, prefixesOf("192.0.2.1/24", "2001:db8::1/64"))
	second := host.Network{Link: "dummy", Index: 77}
	held := egressip.HostPlan([]egressip.LinkAssignment{{Addr: a("10.10.10.5"), Link: second}, {Addr: a("fd10::5"), Link: second}},
		func(netip.Addr) bool { return true }, []netip.Addr{a("10.244.1.3"), a("fd00:10:244:2::3")})
	served := egressservice.Translations{a("10.244.1.3"): a("5.5.5.5"), a("fd00:10:244:2::3"): a("fd55::5")}
	for name, feature := range map[string]egressip.HostState{
		egressservice.Feature: {Rules: served.Rules("shop/checkout")},
		egressip.Feature:      held,
	} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			node := routed.New(t, ns)
			chains, err := iptables.New(chainsOf(topology.Families))
			if err != nil {
				t.Fatal(err)
			}
			for contributor, rules := range map[string]host.Rules{
				gateway.Contributor: gateway.Rules(prefixesOf("10.244.1.0/24", "fd00:10:244:2::/64")), noreroute.Feature: marks, name: feature.Rules,
			} {
				if err := chains.Apply(t.Context(), contributor, rules); err != nil {
					t.Fatal(err)
				}
			}
			if err := route.NewSet().Apply(t.Context(), name, feature.Routes); err != nil {
				t.Fatal(err)
			}
			if err := iprule.NewSet().Apply(t.Context(), name, feature.IPRules); err != nil {
				t.Fatal(err)
			}
			for i, f := range families {
				node.AddPod(f.server + "/" + []string{"24", "64"}[i])
				to := net.JoinHostPort(f.server, "8126")
				ns.Run([]string{"iptables", "ip6tables"}[i], "-t", "nat", "-A", "PREROUTING", "-d", f.node, "-p", "udp", "--dport", "8126",
					"-j", "DNAT", "--to-destination", to)
				pod, server := node.Listen(node.Pods, f.pod, 0), node.Listen(node.Pods, f.server, 8126)
				hostPort := &net.UDPAddr{IP: net.ParseIP(f.node), Port: 8126}
				node.Send(pod, "question", hostPort)
				text, from := node.Receive(server)
				if text != "question" || from != f.port {
					t.Errorf("%q comes from %s, want %s", text, from, f.port)
				}
			}
		})
	}
}
