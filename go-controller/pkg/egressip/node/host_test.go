package node

import (
	"context"
	"maps"
	"net/netip"
	"strings"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/addr"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/attachment"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/settings"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ids are Open_vSwitch's external_ids.
type ids map[string]string

func (i ids) System(context.Context) (map[string]string, error) { return maps.Clone(i), nil }

func (i ids) SetSystem(_ context.Context, more map[string]string) error {
	maps.Copy(i, more)
	return nil
}

// lab is a real host with the drivers of one run of the node.
type lab struct {
	t      *testing.T
	ns     *netnstest.NS
	ids    ids
	kernel Kernel
}

// restart creates the drivers of another run; recorded are the egress addresses.
func (l *lab) restart(recorded ...netip.Addr) {
	l.t.Helper()
	chains, err := iptables.New(egressip.Chains(topology.Families))
	if err != nil {
		l.t.Fatal(err)
	}
	l.kernel = Kernel{
		Addrs: addr.NewSet(addr.New(func() []netip.Addr { return recorded })), Routes: route.NewSet(), IPRules: iprule.NewSet(),
		Settings: settings.NewSet(l.ids), Chains: chains,
	}
}

// apply writes a state.
func (l *lab) apply(s egressip.HostState) {
	l.t.Helper()
	ctx, key := l.t.Context(), egressip.Contributor("prod")
	for _, err := range []error{
		l.kernel.Settings.Apply(ctx, key, s.Settings), l.kernel.Routes.Apply(ctx, key, s.Routes),
		l.kernel.IPRules.Apply(ctx, key, s.IPRules), l.kernel.Chains.Apply(ctx, key, s.Rules),
		l.kernel.Chains.Apply(ctx, key+"/before", s.HandOn), l.kernel.Addrs.Apply(ctx, key, s.Addrs),
	} {
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *lab) sweep() {
	l.t.Helper()
	for _, s := range []interface{ Sweep(context.Context) error }{l.kernel.Settings, l.kernel.Routes, l.kernel.IPRules, l.kernel.Chains, l.kernel.Addrs} {
		if err := s.Sweep(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
	}
}

// show prints the host's state, with the tools of the documentation.
func (l *lab) show() string {
	l.t.Helper()
	var out strings.Builder
	add := func(name string, args ...string) {
		out.WriteString("# " + name + " " + strings.Join(args, " ") + "\n")
		text, err := l.ns.Try(name, args...)
		if err != nil && !strings.Contains(err.Error(), "FIB table does not exist") {
			l.t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if fields := strings.TrimSpace(line); fields != "" && !strings.HasPrefix(fields, "#") && !strings.HasPrefix(fields, ":") {
				out.WriteString(fields + "\n")
			}
		}
	}
	for _, tool := range []string{"iptables-save", "ip6tables-save"} {
		add(tool, "-t", "nat")
		add(tool, "-t", "mangle")
	}
	for _, f := range []string{"-4", "-6"} {
		add("ip", f, "rule")
		add("ip", f, "route", "show", "table", "1111")
	}
	add("ip", "-brief", "addr", "show", "dev", "dummy", "scope", "global")
	add("sysctl", "net.ipv4.conf.dummy.rp_filter", "net.ipv4.conf.dummy.forwarding", "net.ipv6.conf.dummy.forwarding")
	return out.String()
}

// TestHost puts an EgressIP on a real host, where the tools show it as
// in the documentation, and removes it again.
func TestHost(t *testing.T) {
	ns := netnstest.New(t)
	ns.Run("ip", "link", "add", "dummy", "index", "111", "type", "veth", "peer", "name", "wire")
	ns.Run("ip", "link", "set", "wire", "up")
	ns.Run("ip", "link", "set", "dummy", "up")
	ns.Run("ip", "addr", "add", "10.10.10.3/24", "dev", "dummy")
	ns.Run("ip", "addr", "add", "fd10::3/64", "dev", "dummy", "nodad")
	ns.Run("ip", "route", "add", "192.0.2.0/24", "via", "10.10.10.1", "metric", "100")
	ns.Run("ip", "route", "add", "192.0.2.0/24", "via", "10.10.10.2", "metric", "50")
	ns.Run("ip", "route", "add", "198.51.100.0/24", "via", "203.0.113.1", "dev", "dummy", "onlink")
	ns.Run("sysctl", "-qw", "net.ipv4.conf.dummy.rp_filter=1")
	l := &lab{t: t, ns: ns, ids: ids{}}
	before := l.show()

	four, six := netip.MustParseAddr("10.10.10.5"), netip.MustParseAddr("fd10::5")
	e := object("prod", nil, []string{"10.10.10.5 " + self, "fd10::5 " + self})
	plan := func(e *v1.EgressIP) egressip.HostState {
		networks, err := attachment.Networks()
		if err != nil {
			t.Fatal(err)
		}
		ours := func(a netip.Addr) bool { return a == four || a == six }
		found, problem := egressip.AssignLinks(egressip.AssignmentOf(e.Status, topology.Node{Name: self}), networks, ours)
		if problem != "" {
			t.Fatal(problem)
		}
		pods := []netip.Addr{netip.MustParseAddr("10.244.1.3"), netip.MustParseAddr("fd00:10:244:2::3")}
		return egressip.HostPlan(found, func(netip.Addr) bool { return true }, pods)
	}
	l.restart(four, six)
	l.apply(plan(e))
	golden.Check(t, "host", l.show())

	// Another run plans the same, from the state in the kernel.
	same, shown := plan(e), l.show()
	l.restart(four, six)
	l.apply(same)
	l.sweep()
	if got := l.show(); got != shown {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", got, shown)
	}
	// A run without the EgressIP: it was deleted meanwhile. The chains stay,
	// and are empty.
	l.restart(four, six)
	l.sweep()
	bare := strings.NewReplacer("-A PREROUTING -j OVN-KUBE-EGRESS-IP-MARK\n", "", "-A PREROUTING -j OVN-KUBE-EGRESS-IP-HAND-ON\n", "", "-A POSTROUTING -j OVN-KUBE-EGRESS-IP-MULTI-NIC\n", "",
		"*nat\n", "", "*mangle\n", "", "COMMIT\n", "")
	if after := bare.Replace(l.show()); after != bare.Replace(before) {
		t.Errorf("left:\n%s\nat first:\n%s", after, before)
	}
}
