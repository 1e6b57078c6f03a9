package egressip

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func decoded(es ...*v1.EgressIP) []EgressIP {
	var out []EgressIP
	for _, e := range es {
		out = append(out, Decode(e))
	}
	return out
}

func ips(texts ...v1.Address) []v1.Address { return texts }

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		ip      v1.Address
		reason  Reason
		message string
	}{
		{"172.18.0.33", "", ""},
		{"fc00:f853:ccd:e793::33", "", ""},
		{"172.19.0.33", "", ""},
		{"", InvalidAddress, `"" is not an IP address`},
		{"web", InvalidAddress, `"web" is not an IP address`},
		{"172.18.0.33/16", InvalidAddress, `"172.18.0.33/16" is not an IP address`},
		{"::ffff:172.18.0.33", InvalidAddress, `"::ffff:172.18.0.33" is not in canonical form`},
		{"fe80::1%eth0", InvalidAddress, `"fe80::1%eth0" is not in canonical form`},
		{"fe80::1", InvalidAddress, "fe80::1 is not an address that traffic can have on a network"},
		{"0.0.0.0", InvalidAddress, "0.0.0.0 is not an address that traffic can have on a network"},
		{"255.255.255.255", InvalidAddress, "255.255.255.255 is not an address that traffic can have on a network"},
		{"224.0.0.1", InvalidAddress, "224.0.0.1 is not an address that traffic can have on a network"},
		{"::1", InvalidAddress, "::1 is not an address that traffic can have on a network"},
		{"10.244.7.7", InternalAddress, "10.244.7.7 is in the cluster subnet 10.244.0.0/16"},
		{"fd00:10:96::7", InternalAddress, "fd00:10:96::7 is in the service subnet fd00:10:96::/112"},
		{"100.64.9.9", InternalAddress, "100.64.9.9 is in the join subnet 100.64.0.0/16"},
		{"169.254.1.1", InvalidAddress, "169.254.1.1 is not an address that traffic can have on a network"},
		{"fd69::3", InternalAddress, "fd69::3 is in the masquerade subnet fd69::/125"},
		{"172.18.0.3", NodeAddress, "172.18.0.3 is an address of node ovn-worker"},
		{"172.19.0.4", NodeAddress, "172.19.0.4 is an address of node ovn-worker2"},
		{"fc00:f853:ccd:e793::2", NodeAddress, "fc00:f853:ccd:e793::2 is an address of node ovn-control-plane"},
		{"172.18.0.1", GatewayAddress, "172.18.0.1 is the gateway of node ovn-control-plane"},
		{"172.18.255.255", NoNode, "no node can hold 172.18.255.255: ovn-control-plane: is not labelled k8s.ovn.org/egress-assignable; " +
			"ovn-worker, ovn-worker2: has this address as that of a whole network"},
		{"fc00:f853:ccd:e793::", NoNode, "no node can hold fc00:f853:ccd:e793::: ovn-control-plane: is not labelled k8s.ovn.org/egress-assignable; " +
			"ovn-worker, ovn-worker2: has this address as that of a whole network"},
		{"fc00:f853:ccd:e793:ffff:ffff:ffff:ffff", "", ""}, // IPv6 has no broadcast
		{"192.0.2.1", NoNode, "no node can hold 192.0.2.1: ovn-control-plane: is not labelled k8s.ovn.org/egress-assignable; " +
			"ovn-worker, ovn-worker2: has no network with this address"},
	} {
		t.Run(string(c.ip), func(t *testing.T) {
			d := Decide(allWell, decoded(egress("e", 1, ips(c.ip))), cluster)["e"]
			if got, want := d.Placements[0].Refused, (Refusal{c.reason, c.message}); got != want {
				t.Errorf("refused %+v, want %+v", got, want)
			}
			if (d.Placements[0].Node == "") != (c.reason != "") {
				t.Errorf("node %q", d.Placements[0].Node)
			}
		})
	}
}

func TestOlderKeepsTheAddress(t *testing.T) {
	young, old := egress("a", 1, ips("172.18.0.33")), egress("b", 2, ips("172.18.0.33"))
	for _, all := range [][]*v1.EgressIP{{young, old}, {old, young}} {
		got := Decide(allWell, decoded(all...), cluster)
		if got["b"].Placements[0].Node == "" {
			t.Errorf("the older has no node: %+v", got["b"])
		}
		want := Refusal{AddressTaken, "172.18.0.33 belongs to the older EgressIP b"}
		if why := got["a"].Placements[0].Refused; why != want {
			t.Errorf("refused %+v, want %+v", why, want)
		}
	}
	// Even if the status assigns it to the younger one, as after an outage.
	young.Status.Items = []v1.EgressIPStatusItem{{Node: "ovn-worker", EgressIP: "172.18.0.33"}}
	if got := Decide(allWell, decoded(young, old), cluster); got["a"].Placements[0].Node != "" {
		t.Errorf("the younger kept it: %+v", got["a"])
	}
	// An EgressIP that is refused as a whole has no nodes for its addresses.
	old.Spec.PodSelector.MatchLabels = map[string]string{"not a key": ""}
	if got := Decide(allWell, decoded(old), cluster)["b"].Placements[0]; got.Refused.Reason != InvalidSelector || got.Node != "" {
		t.Errorf("%+v", got)
	}
}

// TestNetworks: the longest matching prefix of a node decides.
func TestNetworks(t *testing.T) {
	narrow := func(n *place.Node) { n.Host = append(n.Host, netip.MustParsePrefix("172.18.9.7/24")) }
	for _, c := range []struct {
		name, ip, network, hop string
		change                 change
	}{
		{"primary", "172.18.0.33", "172.18.0.0/16", "100.64.0.3", nil},
		{"primary, IPv6", "fc00:f853:ccd:e793::33", "fc00:f853:ccd:e793::/64", "fd98::3", nil},
		{"secondary", "172.19.0.33", "172.19.0.0/24", "10.244.1.2", nil},
		{"a secondary network within the primary", "172.18.9.33", "172.18.9.0/24", "10.244.1.2", change{narrow}},
		{"beside it", "172.18.8.33", "172.18.0.0/16", "100.64.0.3", change{narrow}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide([]place.Node{node("ovn-worker", 1, c.change...)}, decoded(egress("e", 1, ips(v1.Address(c.ip)))), cluster)["e"]
			p := d.Placements[0]
			if p.Network.String() != c.network || p.NextHop.String() != c.hop || p.Primary != (c.hop == "100.64.0.3" || c.hop == "fd98::3") {
				t.Errorf("%+v", p)
			}
		})
	}
	unready := func(n *place.Node) { n.Join = nil }
	if p := Decide([]place.Node{node("ovn-worker", 1, unready)}, decoded(egress("e", 1, ips("172.18.0.33"))), cluster)["e"].Placements[0]; p.Node != "" {
		t.Errorf("on a node without gateway: %+v", p)
	}
}

// where returns the nodes of an EgressIP's addresses.
func where(d Decision) string {
	var out []string
	for _, p := range d.Placements {
		out = append(out, p.Node)
	}
	return strings.Join(out, " ")
}

func TestPlacement(t *testing.T) {
	on := func(nodes ...string) func(*v1.EgressIP) {
		return func(e *v1.EgressIP) {
			for i, n := range nodes {
				e.Status.Items = append(e.Status.Items, v1.EgressIPStatusItem{Node: n, EgressIP: string(e.Spec.EgressIPs[i])})
			}
		}
	}
	for _, c := range []struct {
		name  string
		nodes []place.Node
		e     *v1.EgressIP
		want  string
	}{
		{"stays", allWell, egress("e", 1, two, on("ovn-worker2", "ovn-worker")), "ovn-worker2 ovn-worker"},
		{"no two of a family on a node", nodes(change{dead}, none), egress("e", 1, two, on("ovn-worker2")), "ovn-worker2 "},
		{"one of each family on a node", nodes(change{dead}, none), egress("e", 1, dualPair), "ovn-worker2 ovn-worker2"},
		{"stays where it is not known", nodes(change{unknown}, change{unknown}), egress("e", 1, two, on("ovn-worker")), "ovn-worker "},
		{"leaves the dead", nodes(change{dead}, none), egress("e", 1, one, on("ovn-worker")), "ovn-worker2"},
		{"leaves the unlabelled", nodes(change{unlabelled}, none), egress("e", 1, one, on("ovn-worker")), "ovn-worker2"},
		{"leaves a node that is gone", allWell[:2], egress("e", 1, one, on("ovn-worker2")), "ovn-worker"},
		{"a cordoned node keeps", nodes(change{cordoned}, none), egress("e", 1, one, on("ovn-worker")), "ovn-worker"},
		{"a cordoned node takes nothing", nodes(change{cordoned}, change{dead}), egress("e", 1, one), ""},
		{"a draining node hands over", nodes(change{draining}, none), egress("e", 1, one, on("ovn-worker")), "ovn-worker2"},
		{"a draining node keeps what nobody takes", nodes(change{draining}, change{dead}), egress("e", 1, one, on("ovn-worker")), "ovn-worker"},
		{"a draining node keeps what no other network has", nodes(change{draining}, change{unlinked}), egress("e", 1, outside[:1], on("ovn-worker")), "ovn-worker"},
		{"a draining node takes nothing", nodes(change{draining}, change{dead}), egress("e", 1, one), ""},
		{"a link that went", nodes(change{unlinked}, none), egress("e", 1, outside[:1], on("ovn-worker")), "ovn-worker2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := where(Decide(c.nodes, decoded(c.e), cluster)["e"]); got != c.want {
				t.Errorf("on %q, want %q", got, c.want)
			}
		})
	}
}

// TestHandoverIsPaced: a node hands over maxHandovers addresses at a time, and more when
// these have arrived.
func TestHandoverIsPaced(t *testing.T) {
	var all []EgressIP
	for i := range 3 * maxHandovers {
		ip := fmt.Sprintf("172.18.1.%d", i)
		all = append(all, Decode(egress(fmt.Sprintf("e%02d", i), 1, ips(v1.Address(ip)), func(e *v1.EgressIP) {
			e.Status.Items = []v1.EgressIPStatusItem{{Node: "ovn-worker", EgressIP: ip}}
			e.Status.Programmed = []v1.ProgrammedStatus{{Node: "ovn-worker", EgressIPs: []string{ip}}}
		})))
	}
	ns := nodes(change{draining}, none)
	for round := range 3 {
		decisions := Decide(ns, all, cluster)
		moved := 0
		for i, e := range all {
			all[i].Items = decisions[e.Key].Nodes()
			if where(decisions[e.Key]) == "ovn-worker2" {
				moved++
			}
		}
		if want := (round + 1) * maxHandovers; moved != want {
			t.Fatalf("round %d: %d have moved, want %d", round, moved, want)
		}
		if again := Decide(ns, all, cluster); !slices.EqualFunc(all, all, func(a, b EgressIP) bool { return decisions[a.Key].Equal(again[b.Key]) }) {
			t.Fatalf("round %d: more go before these have arrived", round)
		}
		for i, e := range all {
			all[i].Holders = map[netip.Addr][]string{e.Addresses[0].Addr: {all[i].Items[e.Addresses[0].Addr]}}
		}
	}
}

// TestProperties: decisions are valid, independent of the input order, and stable when decided again from
// their results, as by a master that restarts.
func TestProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	changes := []func(*place.Node){dead, unknown, notReady, cordoned, draining, unlabelled, unlinked}
	for range 1000 {
		var ns []place.Node
		for i := range 1 + r.IntN(5) {
			var change change
			if r.IntN(2) == 0 {
				change = append(change, changes[r.IntN(len(changes))])
			}
			ns = append(ns, node(fmt.Sprintf("ovn-worker%d", i), i, change...))
		}
		var all []EgressIP
		for i := range r.IntN(6) {
			var list []v1.Address
			for range 1 + r.IntN(3) {
				list = append(list, []v1.Address{"172.18.0.", "172.19.0.", "10.244.0."}[r.IntN(3)]+v1.Address(fmt.Sprint(40+r.IntN(12))))
			}
			all = append(all, Decode(egress(fmt.Sprintf("e%d", i), r.IntN(3), list, func(e *v1.EgressIP) {
				if r.IntN(2) == 0 {
					e.Status.Items = []v1.EgressIPStatusItem{{Node: fmt.Sprintf("ovn-worker%d", r.IntN(6)), EgressIP: string(list[0])}}
				}
			})))
		}
		taken := cluster
		taken.Services = map[netip.Addr]Service{
			netip.MustParseAddr(fmt.Sprintf("172.18.0.%d", 40+r.IntN(12))): {Key: "shop/web", Created: born.Add(-time.Duration(r.IntN(4)) * time.Hour)}}
		got := Decide(ns, all, taken)
		checkDecisions(t, ns, got)
		r.Shuffle(len(ns), func(i, j int) { ns[i], ns[j] = ns[j], ns[i] })
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		again := Decide(ns, all, taken)
		for key := range got {
			if !got[key].Equal(again[key]) {
				t.Fatalf("depends on the order: %+v, %+v", got[key], again[key])
			}
		}
		drains := slices.ContainsFunc(ns, func(n place.Node) bool { return n.Draining }) // only in some cases
		for i, e := range all {
			all[i].Items = got[e.Key].Nodes()
		}
		again = Decide(ns, all, taken)
		for key := range got {
			if !drains && !got[key].Equal(again[key]) {
				t.Fatalf("%s: decided %+v, and from that %+v", key, got[key], again[key])
			}
		}
	}
}

func checkDecisions(t *testing.T, ns []place.Node, got map[string]Decision) {
	t.Helper()
	owner := map[netip.Addr]string{}
	for key, d := range got {
		used := map[string]bool{}
		for _, p := range d.Placements {
			if p.Node == "" {
				if p.Refused == (Refusal{}) {
					t.Fatalf("%s: %s has no node and no reason", key, p.Addr)
				}
				continue
			}
			if owner[p.Addr] != "" || used[p.Node] {
				t.Fatalf("%s: %+v: twice", key, p)
			}
			owner[p.Addr], used[p.Node] = key, true
			n := ns[slices.IndexFunc(ns, func(n place.Node) bool { return n.Name == p.Node })]
			if !n.Ready || n.Reach == place.Dead || !n.EgressAssignable || !p.Network.Contains(p.Addr) {
				t.Fatalf("%s: %+v on %+v", key, p, n)
			}
		}
	}
}

// TestLabel compares the text of a reason with the label that kube reads.
func TestLabel(t *testing.T) {
	if !strings.Contains(string(rejectLabel), kube.LabelEgressAssignable) {
		t.Errorf("%q does not name %s", rejectLabel, kube.LabelEgressAssignable)
	}
	n, err := kube.Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kube.LabelEgressAssignable: ""}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: kube.TaintEgress, Value: kube.TaintEgressDrain}}}})
	if err != nil || !n.EgressAssignable || !n.Draining {
		t.Errorf("%+v, %v", n, err)
	}
}

func FuzzDecide(f *testing.F) {
	f.Add("172.18.0.33", "172.18.0.44", "app", "ovn-worker", "172.18.0.33")
	f.Add("::ffff:1.2.3.4", "fe80::1%x", "not a key", "", "x")
	f.Fuzz(func(t *testing.T, a, b, label, item, held string) {
		e := egress("e", 1, ips(v1.Address(a), v1.Address(b)), func(e *v1.EgressIP) {
			e.Spec.PodSelector.MatchLabels = map[string]string{label: item}
			e.Status.Items = []v1.EgressIPStatusItem{{Node: item, EgressIP: held}, {Node: "ovn-worker", EgressIP: a}}
			e.Status.Programmed = []v1.ProgrammedStatus{{Node: item, EgressIPs: []string{held, b}}}
		})
		d := Decide(allWell, decoded(e, egress("f", 2, two)), cluster)
		checkDecisions(t, allWell, d)
		Conditions(d["e"], e.Status, Report{})
		plan := Steering{EgressIP: Decode(e), Pod: Pod{Addrs: webPod.addrs},
			Paths: d["e"].Paths(e.Status, webPod.addrs, func([]netip.Addr) string { return "" }, nobody), Now: NewState(), Applied: NewState(),
			Owned: func(string, netip.Addr) bool { return true }}.Plan()
		if back := StateOf(plan.Want.Rows()); !back.SamePolicies(plan.Want) || len(back.NATs) != len(plan.Want.NATs) {
			t.Errorf("%+v reads back as %+v", plan.Want, back)
		}
		for pod := range plan.Want.Policies {
			if !Decode(e).Serves(topology.FamilyOf(pod)) {
				t.Errorf("%s has a policy", pod)
			}
		}
	})
}

// TestHeldIsKept: later claims to an address that an EgressIP holds do not displace
// it; the EgressIP reports them. Before the address is held, the other owner has it.
func TestHeldIsKept(t *testing.T) {
	const addr = "172.18.0.33"
	claims := func(n *place.Node) { n.Host = append(slices.Clone(n.Host), prefixes(addr+"/16")...) }
	alone := func(n *place.Node) { n.Host = append(slices.Clone(n.Host), prefixes(addr+"/32")...) }
	own := func(n *place.Node) { n.Primary, n.Gateway.Addrs = prefixes(addr+"/16"), prefixes(addr+"/16") }
	routes := func(n *place.Node) { n.Gateway.NextHops = addrs(addr) }
	hosts := func(name string) Network {
		of := cluster
		of.Hosts = map[netip.Addr]string{netip.MustParseAddr(addr): name}
		return of
	}
	service := cluster
	service.Services = map[netip.Addr]Service{netip.MustParseAddr(addr): {Key: "shop/web"}}
	held := func(e *v1.EgressIP) { e.Status.Items = []v1.EgressIPStatusItem{{Node: "ovn-worker", EgressIP: addr}} }
	for _, c := range []struct {
		name    string
		nodes   []place.Node
		network Network
		reason  Reason
	}{
		{"host-addresses", nodes(nil, change{claims}), cluster, NodeAddress},
		{"host-addresses of the same node", nodes(change{alone}, nil), cluster, NodeAddress},
		{"primary address", nodes(nil, change{own}), cluster, NodeAddress},
		{"next hop", nodes(nil, change{routes}), cluster, GatewayAddress},
		{"Service", allWell, service, AddressTaken},
		{"node that has said nothing yet", allWell, hosts("new"), NodeAddress},
		{"API server", allWell, hosts(""), APIServer},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := egress("e", 1, ips(addr))
			d := Decide(c.nodes, decoded(e), c.network)["e"]
			if p := d.Placements[0]; p.Node != "" || p.Refused.Reason != c.reason {
				t.Errorf("without a holder: %+v", p)
			}
			e = egress("e", 1, ips(addr), held)
			d = Decide(c.nodes, decoded(e), c.network)["e"]
			if p := d.Placements[0]; p.Node != "ovn-worker" || p.Disputed.Reason != c.reason || p.Network.String() != "172.18.0.0/16" {
				t.Errorf("held: %+v", p)
			}
			is := Conditions(d, e.Status, Report{})
			if got := is[2]; got.Status != metav1.ConditionTrue || got.Reason != conditions.ReasonAddressInUse || !strings.Contains(got.Message, addr) {
				t.Errorf("conflict is %+v", got)
			}
			said := Notices(d, Decode(e).Items, nil, is)
			if len(said) != 1 || !said[0].Warning || said[0].Reason != string(c.reason) {
				t.Errorf("Events %+v", said)
			}
			if again := Notices(d, Decode(e).Items, is, is); len(again) != 0 {
				t.Errorf("more Events %+v", again)
			}
		})
	}
}

// TestServicePrecedence: a Service keeps its address from younger EgressIPs only. An older
// EgressIP that held the address and lost its node gets it back, and reports the Service.
func TestServicePrecedence(t *testing.T) {
	e := egress("e", 1, ips("172.18.0.33"))
	created := e.CreationTimestamp.Time
	held := e.DeepCopy()
	held.Status.Items = []v1.EgressIPStatusItem{{Node: "ovn-worker", EgressIP: "172.18.0.33"}}
	for _, c := range []struct {
		name    string
		service time.Time
		wins    bool // the Service
	}{
		{"older", created.Add(-time.Second), true},
		{"as old", created, false},
		{"younger", created.Add(time.Second), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := cluster
			of.Services = map[netip.Addr]Service{addrs("172.18.0.33")[0]: {Key: "shop/web", Created: c.service}}
			lost := Decide(nodes(change{unlabelled}, change{unlabelled}), decoded(held), of)["e"].Placements[0]
			if want := map[bool]Reason{true: AddressTaken, false: NoNode}[c.wins]; lost.Node != "" || lost.Refused.Reason != want {
				t.Errorf("without a node: %+v, want %s", lost, want)
			}
			back := Decide(allWell, decoded(e), of)["e"].Placements[0]
			if c.wins != (back.Node == "") || c.wins != (back.Refused.Reason == AddressTaken) {
				t.Errorf("the Service wins is %t: %+v", c.wins, back)
			}
			if !c.wins && back.Disputed.Reason != AddressTaken {
				t.Errorf("the Service is not reported: %+v", back)
			}
		})
	}
}

// TestOwnSingleAddress: an address without a network, as on a dummy link, is no network that its host could hold it in. That it belongs
// to the host is not trusted: any node could claim any address.
func TestOwnSingleAddress(t *testing.T) {
	for _, addr := range []string{"192.0.2.7", "2001:db8::7"} {
		a := netip.MustParseAddr(addr)
		alone := func(n *place.Node) { n.Host = append(slices.Clone(n.Host), topology.HostPrefix(a)) }
		p := Decide(nodes(change{alone}, nil), decoded(egress("e", 1, ips(v1.Address(addr)))), cluster)["e"].Placements[0]
		if p.Node != "" || p.Refused.Reason != NoNode {
			t.Errorf("%+v", p)
		}
		held := func(e *v1.EgressIP) { e.Status.Items = []v1.EgressIPStatusItem{{Node: "ovn-worker", EgressIP: addr}} }
		p = Decide(nodes(change{alone}, nil), decoded(egress("e", 1, ips(v1.Address(addr)), held)), cluster)["e"].Placements[0]
		if p.Node != "" {
			t.Errorf("held on %+v", p)
		}
	}
}
