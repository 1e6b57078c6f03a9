package iprule

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// show prints the rules of both families without the kernel's own.
func show(ns *netnstest.NS) string {
	var out strings.Builder
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(ns.Run("ip", family, "rule", "show") + "\n") {
			if !strings.HasPrefix(line, "0:") && !strings.HasPrefix(line, "3276") && line != "\n" {
				out.WriteString(strings.TrimRight(line, " \n") + "\n")
			}
		}
	}
	return out.String()
}

func TestRules(t *testing.T) {
	ns := netnstest.New(t)
	// Foreign rules: our priority with their protocol, and the other way round.
	ns.Run("ip", "rule", "add", "from", "10.9.9.9", "table", "77", "priority", "5000")
	ns.Run("ip", "rule", "add", "from", "10.9.9.8", "table", "77", "priority", "4000", "protocol", "79")
	foreign := "4000:\tfrom 10.9.9.8 lookup 77 proto 79\n5000:\tfrom 10.9.9.9 lookup 77\n"
	// Left by an earlier run.
	ns.Run("ip", "rule", "add", "from", "10.244.0.9", "table", "100", "priority", "5000", "protocol", "79")

	s := NewSet()
	want := map[host.IPRule]struct{}{}
	for _, src := range []string{"10.244.0.5/32", "10.244.1.0/24", "fd00:10:244:1::5/128"} {
		p := netip.MustParsePrefix(src)
		want[host.IPRule{Family: topology.FamilyOf(p.Addr()), Priority: topology.RuleEgressServiceNetwork, Src: p, Table: 1000}] = struct{}{}
	}
	for _, f := range topology.Families {
		// Both spellings of "from all" and of the main table.
		want[host.IPRule{Family: f, Priority: topology.RulePodToNode, Mark: topology.MarkPodToNode}] = struct{}{}
	}
	for _, dst := range []string{"172.18.0.4/32", "10.96.0.0/16", "fd00:10:96::/112"} {
		p := netip.MustParsePrefix(dst)
		want[host.IPRule{Family: topology.FamilyOf(p.Addr()), Priority: topology.RuleInside, Dst: p, Table: 254}] = struct{}{}
		want[host.IPRule{Family: topology.FamilyOf(p.Addr()), Priority: topology.RuleBeforeVRF, Dst: p, Table: 254}] = struct{}{}
	}
	for _, protocol := range []string{"tcp", "udp", "sctp"} {
		for _, src := range []string{"169.254.169.3/32", "fd69::3/128"} {
			p := netip.MustParsePrefix(src)
			want[host.IPRule{Family: topology.FamilyOf(p.Addr()), Priority: topology.RuleEgressServiceNetwork, Src: p,
				Protocol: protocol, SrcPort: 30080, Table: 1000}] = struct{}{}
		}
	}
	all := host.IPRule{Family: topology.IPv4, Priority: topology.RuleEgressIP, Src: netip.MustParsePrefix("0.0.0.0/0"), Table: 254}
	want[all] = struct{}{}
	if err := s.Apply(t.Context(), "a", want); err != nil {
		t.Fatal(err)
	}
	if got := show(ns); !strings.Contains(got, "10.244.0.9") {
		t.Errorf("a rule of an earlier run was deleted before Sweep:\n%s", got)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	have, err := Kernel{}.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const golden = `999:	from all to 10.96.0.0/16 lookup main
999:	from all to 172.18.0.4 lookup main
4999:	from all to 10.96.0.0/16 lookup main
4999:	from all to 172.18.0.4 lookup main
5000:	from 10.244.0.5 lookup 1000
5000:	from 10.244.1.0/24 lookup 1000
5000:	from 169.254.169.3 ipproto sctp sport 30080 lookup 1000
5000:	from 169.254.169.3 ipproto tcp sport 30080 lookup 1000
5000:	from 169.254.169.3 ipproto udp sport 30080 lookup 1000
5999:	from all fwmark 0x3f0 lookup main
6000:	from all lookup main
999:	from all to fd00:10:96::/112 lookup main
4999:	from all to fd00:10:96::/112 lookup main
5000:	from fd00:10:244:1::5 lookup 1000
5000:	from fd69::3 ipproto sctp sport 30080 lookup 1000
5000:	from fd69::3 ipproto tcp sport 30080 lookup 1000
5000:	from fd69::3 ipproto udp sport 30080 lookup 1000
5999:	from all fwmark 0x3f0 lookup main
`
	if got := hostfake.DumpIPRules(have); got != golden {
		t.Errorf("List found:\n%s\nwant:\n%s", got, golden)
	}
	ours := show(ns)
	for line := range strings.Lines(foreign) {
		ours = strings.Replace(ours, line, "", 1)
	}
	if ours = strings.ReplaceAll(ours, " proto 79", ""); ours != golden {
		t.Errorf("ip rule show prints:\n%s\nwant:\n%s", ours, golden)
	}

	// Drift.
	ns.Run("ip", "rule", "del", "priority", "5999")
	ns.Run("ip", "rule", "add", "from", "10.244.0.7", "table", "100", "priority", "6000", "protocol", "79")
	if err := s.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have, err = (Kernel{}).List(t.Context()); err != nil || hostfake.DumpIPRules(have) != golden {
		t.Errorf("after drift:\n%s (%v)", hostfake.DumpIPRules(have), err)
	}
	if err := s.Apply(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	if got := show(ns); got != foreign {
		t.Errorf("rules of others changed:\n%s\nwant:\n%s", got, foreign)
	}
}

func TestForeignPriority(t *testing.T) {
	if err := (Kernel{}).Add(t.Context(), host.IPRule{Family: topology.IPv4, Priority: 1, Table: 5}, struct{}{}); err == nil {
		t.Error("a rule that List would not find was accepted")
	}
}
