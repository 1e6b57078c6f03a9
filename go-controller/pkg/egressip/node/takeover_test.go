package node

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
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

// TestFlushesWhenApplied: until its policies are in force on this node, the gateway router continues to translate a pod, and on the
// kernel's datapath it shares its connection tracking entries with the host. A busy connection that gets its
// former address again after the rules were written loses it once the policies are in force, and no other
// connection does. The same applies to a pod that is added later, to an address for which the node was prepared, and after a restart.
func TestFlushesWhenApplied(t *testing.T) {
	const node, right, led = "10.244.1.4 172.18.0.3", "10.244.1.4 10.10.10.5", "10.244.1.5 5.5.5.5"
	for what, c := range map[string]struct {
		programmed []v1.ProgrammedStatus
		later      func(w *world)
		restart    bool
	}{
		"at first":    {},
		"another pod": {later: func(w *world) { w.pod("red", "more", "10.244.1.4/24") }},
		"prepared": {programmed: []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{"10.10.10.5"}}}, later: func(w *world) {
			w.change("prod", func(e *v1.EgressIP) { e.Status.Programmed = e.Status.Programmed[1:] })
		}},
		"prepared, and written half": {programmed: []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{"10.10.10.5"}}}, later: func(w *world) {
			var failed atomic.Bool
			w.addrs.Fail = func(string, host.Address) error {
				if !failed.Swap(true) {
					return errors.New("busy")
				}
				return nil
			}
			w.change("prod", func(e *v1.EgressIP) { e.Status.Programmed = e.Status.Programmed[1:] })
		}},
		"after a restart": {restart: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := secondary("10.10.10.5 " + self)
				e.Status.Programmed = c.programmed
				w := newWorld(t, e)
				w.pod("red", "led", "10.244.1.5/24")
				w.ipRules.Put(host.IPRule{Family: topology.IPv4, Priority: topology.RulePodToNode, Table: topology.MainTable,
					Src: topology.HostPrefix(netip.MustParseAddr("10.244.1.5"))}, struct{}{})
				if what != "another pod" {
					w.pod("red", "more", "10.244.1.4/24")
				}
				stop := w.start()
				pass := func(d time.Duration) {
					<-time.After(d)
					synctest.Wait()
				}
				pass(time.Minute)
				if c.later != nil || c.restart { // after what was changed before is confirmed
					w.applied()
					pass(time.Hour)
					w.applied()
					pass(time.Minute)
				}
				if c.later != nil {
					c.later(w)
				}
				if c.restart {
					stop()
					w.start()
				}
				pass(time.Minute)
				w.track(node, right, led, "10.244.1.9 172.18.0.3")
				w.flows.unsettle(errors.New("busy"))
				w.applied()
				pass(time.Minute)
				if got := w.ended(); len(got) > 0 {
					t.Errorf("flushed %q while the datapath may lead packets elsewhere, which recreate the connections", got)
				}
				w.flows.unsettle(nil)
				w.eventually("the former address to go", func() bool { return slices.Contains(w.ended(), node) })
				if got := w.ended(); slices.Contains(got, right) || slices.Contains(got, led) || slices.Contains(got, "10.244.1.9 172.18.0.3") {
					t.Errorf("flushed %q", got)
				}
			})
		})
	}
}

// TestFlushesNewPodsOnly: when a pod is led here, the connections of pods that were led here before stay, whatever address they
// seem to have: they may leave through external gateways.
func TestFlushesNewPodsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before, added = "10.244.1.5 172.18.0.3", "10.244.1.4 172.18.0.3"
		w := newWorld(t, secondary("10.10.10.5 "+self))
		w.pod("red", "led", "10.244.1.5/24")
		w.start()
		reports := func() {
			for range 3 { // the last one comes long enough after the first to include every change
				w.applied()
				<-time.After(9 * time.Minute)
				synctest.Wait()
			}
		}
		<-time.After(time.Minute)
		synctest.Wait()
		reports()
		w.pod("red", "more", "10.244.1.4/24")
		<-time.After(time.Minute)
		synctest.Wait()
		w.track(before, added)
		w.applied()
		w.eventually("the former address of the new pod to go", func() bool { return slices.Contains(w.ended(), added) })
		if slices.Contains(w.ended(), before) {
			t.Errorf("flushed %q", w.ended())
		}
	})
}

// TestChangesBeforeFlush: a pod that was led here gets another address while this node waits for the datapath. Its connections
// with the new one stay.
func TestChangesBeforeFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, secondary("10.10.10.5 "+self))
		w.pod("red", "more", "10.244.1.4/24")
		w.start()
		w.saysEventually("prod", self+" 10.10.10.5")
		fakeapi.Settle()
		changed := make(chan struct{})
		w.flows.mu.Lock()
		w.flows.settling = func() {
			w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.6 "+self) })
			w.saysEventually("prod", self+" 10.10.10.6")
			w.track("10.244.1.4 10.10.10.6")
			close(changed)
		}
		w.flows.mu.Unlock()
		w.applied()
		<-changed
		fakeapi.Settle()
		if got := w.ended(); slices.Contains(got, "10.244.1.4 10.10.10.6") {
			t.Errorf("ended %q", got)
		}
	})
}
