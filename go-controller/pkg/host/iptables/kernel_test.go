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

// example addresses of a family.
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

// specs are all kinds of rules that the features write.
func specs(e example) []host.Spec {
	to := netip.AddrPortFrom(e.clusterIP, 80)
	pod, lb := topology.HostPrefix(e.pod), topology.HostPrefix(e.lb)
	out := []host.Spec{
		{Src: pod, Comment: "default/demo-svc", Target: host.SNATTo(e.lb)},
		{Src: e.subnet, Out: host.Not("ovn-k8s-mp0"), Target: host.Masquerade},
		{Out: host.Not("ovn-k8s-mp0"), CTState: "DNAT", SrcType: host.Not("LOCAL"), Target: host.Masquerade},
		{Protocol: "tcp", DstPort: 30001, DstType: "LOCAL", Comment: "web", Target: host.DNATTo(to)},
		{Dst: lb, Protocol: "udp", DstPort: 53, Comment: "kube-system/dns:dns-udp", Target: host.DNATTo(to)},
		{Dst: lb, Protocol: "sctp", DstPort: 7777, Target: host.DNATTo(to)},
		{Dst: lb, Protocol: "tcp", DstPort: 80, Comment: "x", Target: host.Return},
		{Dst: lb, Protocol: "tcp", DstPort: 81, Comment: `a "quoted" \ 'one'`, Target: host.Accept},
		{Src: e.subnet, NotSrc: true, Dst: lb, NotDst: true, In: "eth0", Target: host.Accept},
		{Mark: 0x3f0, Target: host.Return},
		{Mark: topology.MarkPodToNode, Protocol: "tcp", Target: host.SetMark(0x1745ec)},
		{CTState: "RELATED,ESTABLISHED", Target: host.Accept},
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

// TestRenderEqualsSave is what text comparison stands on: every rule reads back
// exactly as rendered.
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
