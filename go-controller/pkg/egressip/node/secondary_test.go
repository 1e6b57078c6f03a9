package node

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
)

// secondary returns an EgressIP with addresses on the links of the documentation.
func secondary(items ...string) *v1.EgressIP {
	e := object("prod", []string{"10.10.10.5", "fd10::5"}, items)
	e.Spec.NamespaceSelector = metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	return e
}

// TestSecondary takes addresses on another link and prints the state as in the
// documentation; then it releases them.
func TestSecondary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, secondary("10.10.10.5 "+self, "fd10::5 "+self))
		w.pod("red", "web", "10.244.1.3/24", "fd00:10:244:2::3/64")
		w.pod("blue", "web", "10.244.1.9/24")
		w.start()
		w.saysEventually("prod", self+" 10.10.10.5 fd10::5")
		golden.Check(t, "secondary", w.dump())
		if got := w.recorded(); got != `["10.10.10.5","fd10::5"]` {
			t.Errorf("recorded %s", got)
		}
		w.record(`["172.18.0.3"]`) // as somebody else may write
		w.eventually("the record to be put right", func() bool { return w.recorded() == `["10.10.10.5","fd10::5"]` })
		w.record("")
		w.eventually("the record to be put back", func() bool { return w.recorded() == `["10.10.10.5","fd10::5"]` })
		first := w.get("prod").Status.Programmed[0].Digest
		if first == "" {
			t.Error("no digest")
		}
		if got := w.ended(); !slices.Equal(got, []string{"10.244.1.3 172.18.0.3"}) {
			t.Errorf("flushed %v", got)
		}
		if did := w.did(); !slices.Contains(did, "forget 10.10.10.5") || !slices.Contains(did, "announce 10.10.10.5 on dummy") || !slices.Contains(did, "announce fd10::5 on dummy") {
			t.Errorf("did %q", did)
		}
		w.pod("red", "more", "10.244.2.7/24")
		w.eventually("the rule of one more pod", func() bool { return strings.Contains(w.dump(), "-s 10.244.2.7/32 -o dummy -j SNAT") })
		w.eventually("another digest", func() bool { d := w.get("prod").Status.Programmed[0].Digest; return d != "" && d != first })
		w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.5 "+other, "fd10::5 "+other) })
		w.saysEventually("prod")
		w.eventually("the rest to go", func() bool { return !strings.Contains(w.dump(), "10.10.10.5") })
		golden.Check(t, "secondary-gone", w.dump())
		if got := w.gated("10.10.10.5"); len(got) != 0 {
			t.Errorf("gated on the external bridge, where it never was: %q", got)
		}
		w.eventually("the record to be empty", func() bool { return w.recorded() == "" })
		w.eventually("its connections to end", func() bool { return slices.Contains(w.ended(), "10.244.1.3 10.10.10.5") })
	})
}

// TestRecordUndoneUnseen: while nothing was watched, this node wrote its record and
// somebody reverted it, so that the node that is listed afterwards looks like the last one seen.
func TestRecordUndoneUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, secondary("10.10.10.5 "+self))
		before := w.self()
		c, _ := w.run()
		w.saysEventually("prod", self+" 10.10.10.5")
		if keys := c.nodeKeys(before, before); !slices.Contains(keys, recordKey) {
			t.Errorf("a node without the record asks for %q", keys)
		}
		if keys := c.nodeKeys(nil, before); !slices.Contains(keys, recordKey) {
			t.Errorf("a node that comes back without the record asks for %q", keys)
		}
		if keys := c.nodeKeys(before, w.self()); slices.Contains(keys, recordKey) {
			t.Errorf("the node with the record asks for %q", keys)
		}
	})
}

// TestSecondaryMove: a node prepares everything while the other node holds the address,
// and adds the address only afterwards.
func TestSecondaryMove(t *testing.T) {
	e := secondary("10.10.10.5 " + self)
	e.Status.Programmed = []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{"10.10.10.5"}}}
	w := newWorld(t, e)
	w.pod("red", "web", "10.244.1.3/24")
	w.start()
	w.saysEventually("prod", other+" 10.10.10.5", self)
	if w.get("prod").Status.Programmed[1].Digest == "" {
		t.Error("no digest")
	}
	if got := w.dump(); strings.Contains(got, "dummy 10.10.10.5/32") || !strings.Contains(got, "-s 10.244.1.3/32 -o dummy -j SNAT --to-source 10.10.10.5") {
		t.Errorf("has\n%s", got)
	}
	w.change("prod", func(e *v1.EgressIP) { e.Status.Programmed = e.Status.Programmed[1:] })
	w.saysEventually("prod", self+" 10.10.10.5")
	if got := w.dump(); !strings.Contains(got, "dummy 10.10.10.5/32") {
		t.Errorf("has\n%s", got)
	}
}

// TestSecondaryHandOn: packets of unknown connections are forwarded to the current or previous holder
// of the address; the node that releases it keeps the rules for
// that as long.
func TestSecondaryHandOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := secondary("10.10.10.5 " + self)
		e.Status.Programmed = []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{"10.10.10.5"}}}
		w := newWorld(t, e)
		w.node(other, ".0.4", "00:04", "172.18.0.4/16", "10.10.10.4/24")
		w.pod("red", "web", "10.244.1.3/24")
		w.start()
		w.saysEventually("prod", other+" 10.10.10.5", self)
		const stray = "-d 10.10.10.5/32 -p tcp -m conntrack --ctstate INVALID,NEW -m ttl "
		const copied = stray + "--ttl-gt 8 -j TTL --ttl-set 8\n-A OVN-KUBE-EGRESS-IP-HAND-ON " + stray + "--ttl-eq 8 -j TEE --gateway 10.10.10.4\n"
		if got := w.dump(); !strings.Contains(got, copied) {
			t.Errorf("while the other has it:\n%s", got)
		}
		w.change("prod", func(e *v1.EgressIP) { e.Status.Programmed = e.Status.Programmed[1:] })
		w.saysEventually("prod", self+" 10.10.10.5")
		if got := w.dump(); !strings.Contains(got, copied) {
			t.Errorf("right afterwards:\n%s", got)
		}
		w.eventually("that to end", func() bool { return !strings.Contains(w.dump(), copied) })

		w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.5 "+other) })
		w.saysEventually("prod")
		got := w.dump()
		if strings.Contains(got, "dummy 10.10.10.5/32") || !strings.Contains(got, "-s 10.244.1.3/32 -o dummy -j SNAT --to-source 10.10.10.5") {
			t.Errorf("when it has let go:\n%s", got)
		}
		w.eventually("all of it to go", func() bool { return !strings.Contains(w.dump(), "10.10.10.5") })
		w.eventually("its connections to end", func() bool { return slices.Contains(w.ended(), "10.244.1.3 10.10.10.5") })
	})
}

// TestSecondaryRestart: a restart writes nothing.
func TestSecondaryRestart(t *testing.T) {
	w := newWorld(t, secondary("10.10.10.5 "+self, "fd10::5 "+self))
	w.pod("red", "web", "10.244.1.3/24", "fd00:10:244:2::3/64")
	stop := w.start()
	w.saysEventually("prod", self+" 10.10.10.5 fd10::5")
	stop()
	w.did()
	w.kube.ClearActions()
	before := w.writes()
	w.start()
	if did := w.did(); len(did) != 0 || w.writes() != before {
		t.Errorf("did %q, %d writes", did, w.writes()-before)
	}
	for _, a := range w.kube.Actions() {
		if a.GetVerb() == "patch" {
			t.Errorf("patched: %v", a)
		}
	}
}

// TestSecondaryMovedWhileStopped: a node that was not running when an address moved reports the
// release only once the address is off the link, and does not wait for the sweep to remove it.
func TestSecondaryMovedWhileStopped(t *testing.T) {
	w := newWorld(t, secondary("10.10.10.5 "+self, "fd10::5 "+self))
	stop := w.start()
	w.saysEventually("prod", self+" 10.10.10.5 fd10::5")
	stop()
	w.change("prod", func(e *v1.EgressIP) { give(e, "10.10.10.5 "+other, "fd10::5 "+self) })
	var failed atomic.Bool
	w.addrs.Fail = func(op string, _ host.Address) error {
		if op == "delete" && !failed.Swap(true) {
			if got := w.words("prod"); !slices.Equal(got, []string{self + " 10.10.10.5 fd10::5"}) {
				t.Errorf("says %q before the address is off the link", got)
			}
			return errors.New("not now")
		}
		return nil
	}
	w.start()
	w.saysEventually("prod", self+" fd10::5")
	if got := hostfake.DumpAddresses(w.addrs.Objects()); got != "dummy fd10::5/128 deprecated\n" || !failed.Load() {
		t.Errorf("reported as released with\n%s", got)
	}
}

// TestSecondaryPassedOnWhileStopped: an address that this node holds for another EgressIP since it was
// stopped stays on the link.
func TestSecondaryPassedOnWhileStopped(t *testing.T) {
	w := newWorld(t, secondary("10.10.10.5 "+self))
	stop := w.start()
	w.saysEventually("prod", self+" 10.10.10.5")
	stop()
	w.change("prod", func(e *v1.EgressIP) { e.Status.Items = nil })
	next := object("next", []string{"10.10.10.5"}, []string{"10.10.10.5 " + self}, self+" 10.10.10.5")
	if _, err := w.api.EgressIPV1().EgressIPs().Create(t.Context(), next, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := w.writes()
	_, stop = w.run()
	if got := w.writes(); got != before || w.addrs.Objects()[host.Address{Link: "dummy", Prefix: prefixes("10.10.10.5/32")[0]}] == (host.AddressUse{}) {
		t.Errorf("%d writes, and has\n%s", got-before, w.dump())
	}
	stop()
}

// TestLinkLost: a node releases the addresses of a lost link, reports the reason, and takes them
// again when the link returns under another name.
func TestLinkLost(t *testing.T) {
	w := newWorld(t, secondary("10.10.10.5 "+self))
	w.pod("red", "web", "10.244.1.3/24")
	w.start()
	w.saysEventually("prod", self+" 10.10.10.5")
	w.setNetworks(w.networks[0])
	w.saysEventually("prod", self)
	if got := w.get("prod").Status.Programmed[0]; got.Problem != "no link that is up has network 10.10.10.0/24 of 10.10.10.5" || got.Digest != "" {
		t.Errorf("says %+v", got)
	}
	if got := w.dump(); strings.Contains(got, "10.10.10.5") {
		t.Errorf("left\n%s", got)
	}
	renamed := dummy("net1")
	renamed.Routes = append(renamed.Routes, host.LinkRoute{Dst: prefixes("0.0.0.0/0")[0], Table: 254, Via: renamed.Routes[1].Via})
	w.setNetworks(w.networks[0], renamed)
	w.saysEventually("prod", self+" 10.10.10.5")
	if got := w.dump(); !strings.Contains(got, "default via 10.10.10.1 dev net1 table 1111") || strings.Contains(got, "dummy") {
		t.Errorf("has\n%s", got)
	}
}

// TestNoLinkFor: a node takes no address that its host has itself, or reaches others through.
func TestNoLinkFor(t *testing.T) {
	for _, c := range []struct {
		name, addr, network, problem string
	}{
		{"the host's own address", "203.0.113.9", "203.0.113.9/32", "no link that is up has network 203.0.113.9/32 of 203.0.113.9"},
		{"a gateway", "10.10.10.1", "10.10.10.0/24", "10.10.10.1 is a gateway of the host's routes through dummy"},
		{"one of several gateways", "10.10.10.2", "10.10.10.0/24", "10.10.10.2 is a gateway of the host's routes through dummy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := object("prod", []string{c.addr}, nil)
				e.Status.Items = []v1.EgressIPStatusItem{{EgressIP: c.addr, Node: self, Network: c.network}}
				w := newWorld(t, e)
				anycast := host.Address{Link: "anycast", Prefix: prefixes("203.0.113.9/32")[0]}
				w.addrs.Put(anycast, host.AddressUse{})
				w.networks[1].Routes = append(w.networks[1].Routes, host.LinkRoute{Dst: prefixes("198.51.100.0/24")[0], Table: 254,
					Hops: []host.LinkHop{{Via: netip.MustParseAddr("10.10.10.4")}, {Via: netip.MustParseAddr("10.10.10.2")}}})
				w.networks = append(w.networks, host.Network{Link: anycast.Link, Index: 112, Addrs: []netip.Prefix{anycast.Prefix}})
				w.start()
				w.saysEventually("prod", self)
				<-time.After(time.Second)
				synctest.Wait()
				if got := w.get("prod").Status.Programmed; len(got) != 1 || len(got[0].EgressIPs) > 0 || got[0].Problem != c.problem {
					t.Errorf("says %+v", got)
				}
				if got := hostfake.DumpAddresses(w.addrs.Objects()); got != "anycast 203.0.113.9/32\n" {
					t.Errorf("the host has\n%s", got)
				}
				if got := w.recorded(); got != "" {
					t.Errorf("recorded %s", got)
				}
			})
		})
	}
}

// TestRoutesFollow: the table of a link follows the main table.
func TestRoutesFollow(t *testing.T) {
	w := newWorld(t, secondary("10.10.10.5 "+self))
	w.start()
	w.saysEventually("prod", self+" 10.10.10.5")
	more := dummy("dummy")
	more.Addrs = append(more.Addrs, prefixes("10.10.10.5/32")...) // ours, as the kernel shows it
	more.Routes = append(more.Routes, host.LinkRoute{Dst: prefixes("198.51.100.0/24")[0], Table: 254, Via: more.Routes[1].Via})
	w.setNetworks(w.networks[0], more)
	w.eventually("the route", func() bool { return strings.Contains(w.dump(), "198.51.100.0/24 via 10.10.10.1 dev dummy table 1111") })
	w.setNetworks(w.networks[0], dummy("dummy"))
	w.eventually("the route to go", func() bool { return !strings.Contains(w.dump(), "198.51.100.0/24") })
}

// TestPodsOnlyWhenNeeded: no pods are watched for addresses on the primary network.
func TestPodsOnlyWhenNeeded(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
	w.start()
	w.saysEventually("prod", self+" "+four)
	if w.informed != 0 {
		t.Error("watches pods")
	}
	if got := w.writes(); got > 0 {
		t.Errorf("%d writes to the kernel", got)
	}
}

// TestOlderHasThePod: the pods of an older EgressIP do not belong to this one, until the older one
// no longer selects them.
func TestOlderHasThePod(t *testing.T) {
	old := object("aaa", []string{four}, nil)
	old.Spec.NamespaceSelector = secondary().Spec.NamespaceSelector
	old.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	w := newWorld(t, secondary("10.10.10.5 "+self), old)
	w.pod("red", "web", "10.244.1.3/24")
	w.pod("red", "db", "10.244.1.4/24")
	w.start()
	w.saysEventually("prod", self+" 10.10.10.5")
	if got := w.dump(); strings.Contains(got, "10.244.1.3") || !strings.Contains(got, "10.244.1.4") {
		t.Errorf("has\n%s", got)
	}
	w.change("aaa", func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels["app"] = "db" })
	w.eventually("the pods to change hands", func() bool {
		return strings.Contains(w.dump(), "10.244.1.3") && !strings.Contains(w.dump(), "10.244.1.4")
	})
	p, err := w.kube.CoreV1().Pods("red").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p = p.DeepCopy()
	p.Status.Phase = corev1.PodSucceeded
	if _, err := w.kube.CoreV1().Pods("red").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the finished pod to go", func() bool { return !strings.Contains(w.dump(), "10.244.1.3") })
}
