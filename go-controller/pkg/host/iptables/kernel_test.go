package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// saveCommand prints the tables of each family.
var saveCommand = map[topology.Family]string{topology.IPv4: "iptables-save", topology.IPv6: "ip6tables-save"}

func nat(f topology.Family, name string) host.ChainKey {
	return host.ChainKey{Family: f, Table: "nat", Name: host.ChainPrefix + name}
}

// both declares chains for both families.
func both(position int, table, name string, jumps ...host.Jump) []host.Chain {
	var out []host.Chain
	for _, f := range topology.Families {
		out = append(out, host.Chain{
			ChainKey: host.ChainKey{Family: f, Table: table, Name: host.ChainPrefix + name},
			Jumps:    jumps, Position: position,
		})
	}
	return out
}

func newWriter(t *testing.T, chains ...[]host.Chain) *Writer {
	t.Helper()
	w, err := New(slices.Concat(chains...))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// rulesIn returns the rules of one chain as iptables-save prints them.
func rulesIn(ns *netnstest.NS, key host.ChainKey) []host.Rule {
	var out []host.Rule
	for line := range strings.Lines(ns.Run(saveCommand[key.Family], "-t", key.Table)) {
		if r, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "-A "+key.Name+" "); ok {
			out = append(out, host.Rule(r))
		}
	}
	return out
}

// example holds example addresses of a family.
type example struct {
	family                    topology.Family
	pod, clusterIP, lb, other netip.Addr
	subnet                    netip.Prefix
}

var examples = []example{
	{topology.IPv4, netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("5.5.5.5"),
		netip.MustParseAddr("172.18.0.3"), netip.MustParsePrefix("10.244.1.0/24")},
	{topology.IPv6, netip.MustParseAddr("fd00:10:244:1::5"), netip.MustParseAddr("fd00:10:96::a"),
		netip.MustParseAddr("5555:5555:5555:5555:5555:5555:5555:5555"), netip.MustParseAddr("fc00:f853:ccd:e793::3"),
		netip.MustParsePrefix("fd00:10:244:2::/64")},
}

// specs returns rules of all kinds that the features write.
func specs(e example) []host.Spec {
	to := netip.AddrPortFrom(e.clusterIP, 80)
	pod, lb := topology.HostPrefix(e.pod), topology.HostPrefix(e.lb)
	out := []host.Spec{
		{Src: pod, Comment: "default/demo-svc", Target: host.SNATTo(e.lb)},
		{Src: e.subnet, Out: host.Not("ovn-k8s-mp0"), Target: host.Masquerade},
		{Out: host.Not("ovn-k8s-mp0"), CTState: "DNAT", SrcType: host.Not("LOCAL"), Target: host.Masquerade},
		{Comment: strings.Repeat("long/", 60), Target: host.Return},
		{Comment: "two\nlines", Target: host.Return},
		{Comment: strings.Repeat("ä", 200), Target: host.Return},
		{Protocol: "tcp", DstPort: 30001, DstType: "LOCAL", Comment: "web", Target: host.DNATTo(to)},
		{Dst: lb, Protocol: "udp", DstPort: 53, Comment: "kube-system/dns:dns-udp", Target: host.DNATTo(to)},
		{Dst: lb, Protocol: "sctp", DstPort: 7777, Target: host.DNATTo(to)},
		{Dst: lb, Protocol: "tcp", DstPort: 80, Comment: "x", Target: host.Return},
		{Dst: lb, Protocol: "tcp", DstPort: 81, Comment: `a "quoted" \ 'one'`, Target: host.Accept},
		{Src: e.subnet, NotSrc: true, Dst: lb, NotDst: true, In: "eth0", Target: host.Accept},
		{Mark: 0x3f0, Target: host.Return},
		{Mark: topology.MarkPodToNode, Protocol: "tcp", Target: host.SetMark(0x1745ec)},
		{CTState: "RELATED,ESTABLISHED", Target: host.Accept},
		{In: "ovn-k8s-mp0", OrigDst: e.lb, Reply: true, Comment: "ns/svc", Target: host.Return},
		{In: "ovn-k8s-mp0", Protocol: "sctp", OrigDstPort: 30080, Reply: true, Comment: "ns/svc", Target: host.Return},
		{Src: pod, In: "ovn-k8s-mp0", CTState: "DNAT", OrigDst: e.lb, OrigDstPort: 80, Protocol: "tcp", Reply: true, Target: host.Return},
		{Src: netip.MustParsePrefix("0.0.0.0/0"), Target: host.SNATTo(e.other)},
	}
	if e.family == topology.IPv6 {
		out[len(out)-1].Src = netip.MustParsePrefix("::/0")
	}
	for k := 2; k <= 12; k++ {
		out = append(out, host.Spec{
			Dst: lb, Protocol: "tcp", DstPort: 8080, Probability: 1 / float64(k), Comment: "ns/svc", Target: host.DNATTo(to),
		})
	}
	return out
}

// TestRenderEqualsSave checks what the comparison as text relies on: every rule reads back exactly
// as rendered.
func TestRenderEqualsSave(t *testing.T) {
	ns := netnstest.New(t)
	for _, e := range examples {
		var want []host.Rule
		for _, s := range specs(e) {
			want = append(want, s.Rule())
		}
		key := nat(e.family, "TEST")
		w := newWriter(t, both(0, "nat", "TEST")) // a chain that is not reached may hold all of them
		if err := w.Apply(t.Context(), "a", host.Rules{key: want}); err != nil {
			t.Fatal(err)
		}
		if got := rulesIn(ns, key); !slices.Equal(got, want) {
			t.Errorf("%s\n got %s\nwant %s", e.family, lines(got), lines(want))
		}
	}
	want := host.Rule(`-s 10.244.0.5/32 -m comment --comment "default/demo-svc" -j SNAT --to-source 5.5.5.5`)
	if got := host.SNAT(topology.HostPrefix(examples[0].pod), examples[0].lb, "default/demo-svc"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func lines(rules []host.Rule) string {
	s := ""
	for _, r := range rules {
		s += fmt.Sprintf("\n  %s", r)
	}
	return s
}

// natRules prints the nat table of a family without counters and policies.
func natRules(ns *netnstest.NS, f topology.Family) string {
	var out []string
	for line := range strings.Lines(ns.Run(saveCommand[f], "-t", "nat")) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, ":"+host.ChainPrefix) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if want = strings.TrimSpace(want); got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}

// postrouting declares the chains of POSTROUTING in the order the gateway needs.
func postrouting() [][]host.Chain {
	return [][]host.Chain{
		both(3, "nat", "MASQ", host.Jump{From: "POSTROUTING"}),
		both(1, "nat", "EGRESS-SVC", host.Jump{From: "POSTROUTING"}),
		both(2, "nat", "SNAT-MGMTPORT", host.Jump{From: "POSTROUTING", Match: "-o ovn-k8s-mp0"}),
	}
}

// TestLife goes through the life of a node's chains: fresh, changed, restarted with leftovers,
// edited by others, cleaned up.
func TestLife(t *testing.T) {
	ns := netnstest.New(t)
	ctx := t.Context()
	for _, e := range examples {
		snat := func(owner string) host.Rule {
			return host.SNAT(topology.HostPrefix(e.pod), e.lb, owner)
		}
		key, masq := nat(e.family, "EGRESS-SVC"), nat(e.family, "MASQ")
		last := host.Spec{Src: e.subnet, Out: host.Not("ovn-k8s-mp0"), Target: host.Masquerade}.Rule()
		iptables := strings.TrimSuffix(saveCommand[e.family], "-save")
		ns.Run(iptables, "-t", "nat", "-A", "POSTROUTING", "-o", "lo", "-j", "ACCEPT")

		w := newWriter(t, postrouting()...)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(w.Apply(ctx, "z", host.Rules{key: {snat("ns/z")}}))
		must(w.Apply(ctx, "a", host.Rules{key: {snat("ns/a")}, masq: {last}}))
		jumps := `
:OVN-KUBE-EGRESS-SVC - [0:0]
:OVN-KUBE-MASQ - [0:0]
:OVN-KUBE-SNAT-MGMTPORT - [0:0]
-A POSTROUTING -j OVN-KUBE-EGRESS-SVC
-A POSTROUTING -o ovn-k8s-mp0 -j OVN-KUBE-SNAT-MGMTPORT
-A POSTROUTING -j OVN-KUBE-MASQ
-A POSTROUTING -o lo -j ACCEPT`
		full := fmt.Sprintf("%s\n-A OVN-KUBE-EGRESS-SVC %s\n-A OVN-KUBE-EGRESS-SVC %s\n-A OVN-KUBE-MASQ %s",
			jumps, snat("ns/a"), snat("ns/z"), last)
		expect(t, "fresh", natRules(ns, e.family), full)

		// What a contributor drops is deleted even before Sweep.
		must(w.Apply(ctx, "z", nil))
		expect(t, "dropped", natRules(ns, e.family),
			fmt.Sprintf("%s\n-A OVN-KUBE-EGRESS-SVC %s\n-A OVN-KUBE-MASQ %s", jumps, snat("ns/a"), last))
		must(w.Apply(ctx, "z", host.Rules{key: {snat("ns/z")}}))

		// Another run: leftovers stay in place until Sweep.
		ns.Run(iptables, "-t", "nat", "-N", "OVN-KUBE-OLD")
		ns.Run(iptables, "-t", "nat", "-I", "POSTROUTING", "2", "-j", "OVN-KUBE-OLD")
		w = newWriter(t, postrouting()...)
		must(w.Apply(ctx, "z", host.Rules{key: {snat("ns/z")}}))
		for _, r := range []host.Rule{snat("ns/a"), snat("ns/z"), last, "-j OVN-KUBE-OLD"} {
			if !strings.Contains(natRules(ns, e.family), string(r)) {
				t.Errorf("before Sweep %s was deleted", r)
			}
		}
		must(w.Apply(ctx, "base", host.Rules{masq: {last}}))
		must(w.Sweep(ctx))
		swept := fmt.Sprintf("%s\n-A OVN-KUBE-EGRESS-SVC %s\n-A OVN-KUBE-MASQ %s", jumps, snat("ns/z"), last)
		expect(t, "swept", natRules(ns, e.family), swept)

		// Others edit, flush and insert their rules at the top.
		for what, args := range map[string][]string{
			"a chain flushed":     {"-F", "OVN-KUBE-EGRESS-SVC"},
			"a rule added":        {"-A", "OVN-KUBE-MASQ", "-j", "RETURN"},
			"a jump deleted":      {"-D", "POSTROUTING", "-j", "OVN-KUBE-MASQ"},
			"a jump doubled":      {"-A", "POSTROUTING", "-j", "OVN-KUBE-MASQ"},
			"all jumps flushed":   {"-F", "POSTROUTING"},
			"somebody at the top": {"-I", "POSTROUTING", "-o", "lo", "-j", "ACCEPT"},
		} {
			ns.Run(iptables, append([]string{"-t", "nat"}, args...)...)
			must(w.Resync(ctx))
			got := strings.ReplaceAll(natRules(ns, e.family), "\n-A POSTROUTING -o lo -j ACCEPT", "")
			expect(t, what, got, strings.ReplaceAll(swept, "\n-A POSTROUTING -o lo -j ACCEPT", ""))
		}
	}
	for _, f := range topology.Families {
		ns.Run(strings.TrimSuffix(saveCommand[f], "-save"), "-t", "nat", "-A", "POSTROUTING", "-o", "lo", "-j", "ACCEPT")
	}
	if err := Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	for _, f := range topology.Families {
		if got := ns.Run(saveCommand[f]); strings.Contains(got, host.ChainPrefix) || !strings.Contains(got, "-o lo -j ACCEPT") {
			t.Errorf("after clean-up of %s:\n%s", f, got)
		}
	}
}

// TestOthersRulesStay: changing one of many rules leaves the others untouched in the kernel, as
// their handles show.
func TestOthersRulesStay(t *testing.T) {
	ns := netnstest.New(t)
	w := newWriter(t, postrouting()...)
	key := nat(topology.IPv4, "EGRESS-SVC")
	apply := func(pods ...int) map[string]string {
		t.Helper()
		var list []host.Rule
		for _, n := range pods {
			list = append(list, host.SNAT(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(n)}), 32), netip.MustParseAddr("5.5.5.5"), "ns/a"))
		}
		if err := w.Apply(t.Context(), "a", host.Rules{key: list}); err != nil {
			t.Fatal(err)
		}
		if got := rulesIn(ns, key); !slices.Equal(got, list) {
			t.Fatalf("%v, want %v", got, list)
		}
		handles := map[string]string{}
		for line := range strings.Lines(ns.Run("nft", "-a", "list", "chain", "ip", "nat", key.Name)) {
			if rule, handle, ok := strings.Cut(line, "# handle "); ok && strings.Contains(rule, "10.244.0.") {
				at := strings.Index(rule, "10.244.0.")
				handles[strings.Fields(rule[at:])[0]] = strings.TrimSpace(handle)
			}
		}
		return handles
	}
	before := apply(1, 2, 3, 4, 5, 6, 7, 8)
	after := apply(1, 2, 3, 5, 6, 7, 8, 9)
	for _, pod := range []string{"10.244.0.1", "10.244.0.3", "10.244.0.5", "10.244.0.8"} {
		if before[pod] == "" || before[pod] != after[pod] {
			t.Errorf("the rule of %s was made anew: %v, then %v", pod, before, after)
		}
	}
}

// TestNoWrite: a pass over tables in the desired state does not run iptables-restore, as the
// generation number of the rule set shows.
func TestNoWrite(t *testing.T) {
	ns := netnstest.New(t)
	ctx := t.Context()
	w := newWriter(t, postrouting()...)
	want := host.Rules{}
	for _, e := range examples {
		want[nat(e.family, "EGRESS-SVC")] = []host.Rule{host.SNAT(topology.HostPrefix(e.pod), e.lb, "ns/a")}
	}
	if err := w.Apply(ctx, "a", want); err != nil {
		t.Fatal(err)
	}
	handles := func() string { return ns.Run("nft", "-a", "list", "ruleset") }
	before := handles()
	for name, step := range map[string]func() error{
		"Apply":  func() error { return w.Apply(ctx, "a", want) },
		"Sweep":  func() error { return w.Sweep(ctx) },
		"Resync": func() error { return w.Resync(ctx) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		if got := handles(); got != before {
			t.Errorf("%s wrote although nothing differed:\n%s\nbefore:\n%s", name, got, before)
		}
	}
}

// TestUndeclared: a contribution with rules for an undeclared chain is rejected as a whole.
func TestUndeclared(t *testing.T) {
	w := newWriter(t, both(0, "nat", "A"))
	err := w.Apply(t.Context(), "x", host.Rules{nat(4, "A"): {"-j RETURN"}, nat(4, "B"): {"-j RETURN"}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, r := range []host.Rule{"", "-s 10.0.0.1/32", "-j RETURN\nCOMMIT"} {
		if err := w.Apply(t.Context(), "x", host.Rules{nat(4, "A"): {r}}); err == nil {
			t.Errorf("%q was accepted", r)
		}
	}
	if len(w.want) != 0 {
		t.Error("remembered all the same")
	}
}
