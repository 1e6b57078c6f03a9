package node

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestKeepsConnectionsOfOthers: if an EgressService leads a pod on this node, its rules come before those of an EgressIP, and
// the pod's connections have the right address, whether the EgressIP is new or only ovnkube was restarted.
func TestKeepsConnectionsOfOthers(t *testing.T) {
	for what, rule := range map[string]host.IPRule{
		"translated":       {Priority: topology.RulePodToNode, Table: topology.MainTable},
		"in a network":     {Priority: topology.RuleEgressServiceNetwork, Table: 100},
		"replies to nodes": {Priority: topology.RuleEgressServiceNetwork, Table: 100, Protocol: "tcp", SrcPort: 30080},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, secondary("10.10.10.5 "+self, "fd10::5 "+self))
				w.pod("red", "web", "10.244.1.3/24", "fd00:10:244:2::3/64")
				w.pod("red", "more", "10.244.1.4/24")
				for _, pod := range []string{"10.244.1.3", "fd00:10:244:2::3"} {
					r, a := rule, netip.MustParseAddr(pod)
					r.Family, r.Src = topology.FamilyOf(a), topology.HostPrefix(a)
					w.ipRules.Put(r, struct{}{})
				}
				const led, ledSix, wrong = "10.244.1.3 5.5.5.5", "fd00:10:244:2::3 5555::5", "10.244.1.4 5.5.5.5"
				want := []string{wrong}
				if rule.Protocol != "" {
					want = []string{"10.244.1.3 172.18.0.3", led, wrong, ledSix}
				}
				w.track(led, ledSix, wrong)
				stop := w.start()
				w.saysEventually("prod", self+" 10.10.10.5 fd10::5")
				synctest.Wait()
				if got := slices.Compact(slices.Sorted(slices.Values(w.ended()))); !slices.Equal(got, want) {
					t.Errorf("flushed %q, want %q", got, want)
				}
				stop()
				w.track()
				w.start()
				w.eventually("the wrong one to go", func() bool { return slices.Contains(w.ended(), wrong) })
				if got := slices.Compact(slices.Sorted(slices.Values(w.ended()))); !slices.Equal(got, want) {
					t.Errorf("flushed after a restart: %q, want %q", got, want)
				}
				w.track()
				w.change("prod", func(e *v1.EgressIP) { e.Spec.NamespaceSelector.MatchLabels["team"] = "blue" })
				w.eventually("the former address to go", func() bool { return slices.Equal(w.ended(), []string{"10.244.1.3 10.10.10.5"}) })
			})
		})
	}
}
