package app

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestUsualRoutes: if an EgressService and an EgressIP on a secondary network, both on one node,
// select a pod, the EgressService decides how its packets leave; whichever comes first, after a
// restart, and until the last of its rules is removed.
func TestUsualRoutes(t *testing.T) {
	ns := netnstest.New(t)
	for dev, addrs := range map[string][2]string{
		topology.ManagementPort: {"10.244.1.2/24", "fd00:10:244:2::2/64"},
		"breth0":                {"192.0.2.1/24", "2001:db8::1/64"},
		"eth1":                  {"10.10.10.3/24", "fd10::3/64"},
	} {
		ns.Veth(dev, "x-"+dev)
		ns.Run("ip", "addr", "add", addrs[0], "dev", dev)
		ns.Run("ip", "addr", "add", addrs[1], "dev", dev, "nodad")
	}
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf."+topology.ManagementPort+".rp_filter=2")
	ns.Run("ip", "route", "add", "default", "via", "192.0.2.9")
	ns.Run("ip", "-6", "route", "add", "default", "via", "2001:db8::9")

	families := []struct{ flag, pod, outside string }{
		{"-4", "10.244.1.3", "198.51.100.9"}, {"-6", "fd00:10:244:2::3", "2001:db8:9::9"},
	}
	translations, pods := egressservice.Translations{}, []netip.Addr{}
	for _, f := range families {
		pod := netip.MustParseAddr(f.pod)
		pods = append(pods, pod)
		translations[pod] = pod // to what does not matter
	}
	second := host.Network{Link: "eth1", Index: 77}
	prepared := egressip.HostPlan([]egressip.LinkAssignment{
		{Addr: netip.MustParseAddr("10.10.10.5"), Link: second}, {Addr: netip.MustParseAddr("fd10::5"), Link: second},
	}, func(netip.Addr) bool { return true }, pods)
	routes := route.NewSet()
	if err := routes.Apply(t.Context(), "a", prepared.Routes); err != nil {
		t.Fatal(err)
	}
	rules := iprule.NewSet()
	apply := func(contributor string, want map[host.IPRule]struct{}) {
		t.Helper()
		if err := rules.Apply(t.Context(), contributor, want); err != nil {
			t.Fatal(err)
		}
	}
	service := func(of egressservice.Translations) {
		t.Helper()
		apply(egressservice.Contributor("a/b"), egressservice.MainTableRules(of))
	}
	egressIP := func(has egressip.HostState) {
		t.Helper()
		apply(egressip.Contributor("prod"), has.IPRules)
	}
	leaves := func(by string) {
		t.Helper()
		for _, f := range families {
			out := ns.Run("ip", f.flag, "route", "get", f.outside, "from", f.pod, "iif", topology.ManagementPort)
			if !strings.Contains(out, " dev "+by+" ") {
				t.Errorf("%s is to leave by %s: %s", f.pod, by, out)
			}
		}
	}
	none := func() {
		t.Helper()
		for _, f := range families {
			if out := ns.Run("ip", f.flag, "rule", "list"); strings.Contains(out, f.pod) {
				t.Errorf("rules that nobody needs:\n%s", out)
			}
		}
	}
	leaves("breth0")
	service(translations)
	none()
	egressIP(prepared)
	leaves("breth0")
	service(nil)
	leaves("eth1")
	service(translations)
	leaves("breth0")
	rules = iprule.NewSet() // another run, which sees the EgressIP first
	egressIP(prepared)
	leaves("breth0")
	service(translations)
	if err := rules.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaves("breth0")
	egressIP(egressip.HostState{})
	leaves("breth0")
	none()
}
