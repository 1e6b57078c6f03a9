package node

import (
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestPodChangesEgressIP: a pod that another EgressIP gets leaves with no address of the host in between, however long the
// other one takes. If that one is on another node, it is held back until it is led there.
func TestPodChangesEgressIP(t *testing.T) {
	for where, settled := range map[string]string{self: "-s 10.244.1.3/32 -o dummy -j SNAT --to-source 10.10.10.6", other: ""} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := object("spare", []string{"10.10.10.6"}, []string{"10.10.10.6 " + where})
				next.Spec.NamespaceSelector = metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
				w := newWorld(t, secondary("10.10.10.5 "+self), next) // the one whose name sorts first has the pod
				w.pod("red", "web", "10.244.1.3/24")
				routed := func() bool {
					for r := range w.ipRules.Objects() {
						if r.Src == topology.HostPrefix(netip.MustParseAddr("10.244.1.3")) {
							return true
						}
					}
					return false
				}
				var begun, locked atomic.Bool
				check := func() {
					if got := w.escapes(); begun.Load() && (len(got) > 0 || !routed()) {
						t.Errorf("the pod leaves by the main table, or %q:\n%s", got, w.dump())
					}
				}
				w.routes.Fail = func(string, host.Route) error { check(); return nil }
				w.ipRules.Fail = func(string, host.IPRule) error { check(); return nil }
				w.chains.Fail = func(contributor string) error {
					check()
					if locked.Load() && contributor == egressip.Contributor("spare") {
						return errors.New("iptables is locked")
					}
					return nil
				}
				w.start()
				w.saysEventually("prod", self+" 10.10.10.5")
				w.eventually("the pod's translation", func() bool { return strings.Contains(w.dump(), "--to-source 10.10.10.5") })
				synctest.Wait()
				begun.Store(true)
				locked.Store(true)
				w.change("prod", func(e *v1.EgressIP) { e.Spec.NamespaceSelector.MatchLabels["team"] = "blue" })
				<-time.After(time.Second)
				check()
				locked.Store(false)
				<-time.After(time.Second)
				check()
				begun.Store(where == self)
				w.eventually("the end", func() bool {
					got := w.dump()
					return strings.Contains(got, settled) && !strings.Contains(got, "lookup 1000") && !strings.Contains(got, "--to-source 10.10.10.5")
				})
				check()
			})
		})
	}
}

// TestHeldBack: a pod is held back only as long as another EgressIP leads it to another node, whether or not the former one
// had a link, and its replies pass.
func TestHeldBack(t *testing.T) {
	toBlue := func(e *v1.EgressIP) { e.Spec.NamespaceSelector.MatchLabels["team"] = "blue" }
	for name, c := range map[string]struct {
		items         []string // of the other EgressIP
		before, after func(w *world)
		deleted       bool // the former EgressIP is, instead of losing the pod
		drops         bool // the other EgressIP drops what has no address
		soon, later   bool // it is held back one second after the change, and three seconds after that
	}{
		"to another node":      {items: []string{"10.10.10.6 " + other}, soon: true, later: true},
		"without a link":       {items: []string{"10.10.10.6 " + other}, before: func(w *world) { w.setNetworks(w.networks[0]) }, soon: true, later: true},
		"from a deleted one":   {items: []string{"10.10.10.6 " + other}, deleted: true, soon: true, later: true},
		"to no address":        {},
		"to the other family":  {items: []string{"fd00:10::6 " + other}},
		"to be dropped":        {drops: true, soon: true, later: true},
		"and to nobody":        {items: []string{"10.10.10.6 " + other}, after: func(w *world) { w.change("spare", toBlue) }, soon: true},
		"to one without nodes": {items: []string{"10.10.10.6 " + other}, after: func(w *world) { w.change("spare", func(e *v1.EgressIP) { give(e) }) }, soon: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := object("spare", []string{"10.10.10.6"}, c.items)
				next.Spec.NamespaceSelector = metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
				if c.drops {
					next.Spec.OnUnavailable = v1.UnavailableDrop
				}
				w := newWorld(t, secondary("10.10.10.5 "+self), next)
				w.pod("red", "web", "10.244.1.3/24")
				w.start()
				w.saysEventually("prod", self+" 10.10.10.5")
				w.eventually("the pod's translation", func() bool { return strings.Contains(w.dump(), "--to-source 10.10.10.5") })
				if c.before != nil {
					c.before(w)
					w.eventually("no translation", func() bool { return !strings.Contains(w.dump(), "--to-source 10.10.10.5") })
				}
				check := func(when string, want bool) {
					t.Helper()
					got := w.dump()
					if held := strings.Contains(got, "from 10.244.1.3 lookup 1000\n"); held != want {
						t.Errorf("%s: held back: %t, want %t:\n%s", when, held, want, got)
					}
					if want && !strings.Contains(got, "--ctdir REPLY") {
						t.Errorf("%s: replies are held back, too:\n%s", when, got)
					}
				}
				if c.deleted {
					if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				} else {
					w.change("prod", toBlue)
				}
				<-time.After(time.Second)
				synctest.Wait()
				check("one second after the change", c.soon)
				if c.after != nil {
					c.after(w)
				}
				<-time.After(3 * time.Second)
				synctest.Wait()
				check("later", c.later)
				<-time.After(4 * time.Second)
				synctest.Wait()
				check("in the end", false)
			})
		})
	}
}
