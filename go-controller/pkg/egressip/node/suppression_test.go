package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestGateAfterFailedWrite: flows whose write failed may still be written later.
// If the previous flows are wanted again by then, they are written to the bridge again.
func TestGateAfterFailedWrite(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
	w.start()
	w.saysEventually("prod", self+" "+four)
	w.flows.fail(errBusy)
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+other) })
	w.eventually("the gate to be asked for", func() bool { return w.flows.failed() > 0 })
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+self) })
	w.flows.fail(nil)
	w.eventually("the gate to go", func() bool { return len(w.gated(four)) == 0 })
}

// TestReleaseTakesEffect: an address counts as released only when no packet uses the flows that let
// this node answer for it, since another node takes it then.
func TestReleaseTakesEffect(t *testing.T) {
	w := newWorld(t, object("prod", []string{four, six}, []string{four + " " + self, six + " " + self}))
	w.start()
	w.saysEventually("prod", self+" "+four+" "+six)
	w.flows.unsettle(errBusy)
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+other, six+" "+self) })
	w.eventually("the flows to be waited for, and again", func() bool { return w.flows.waited() > 1 })
	if got := w.gated(four); len(got) != 1 {
		t.Error("the bridge still lets answers pass")
	}
	if got := w.words("prod"); !slices.Equal(got, []string{self + " " + four + " " + six}) {
		t.Errorf("the node says %v", got)
	}
	w.flows.unsettle(nil)
	w.saysEventually("prod", self+" "+six)
	if !w.flows.settled() {
		t.Error("packets use flows from before the release")
	}
}

// TestTakeWhileUnsettled: as long as packets may use flows from before the release of an address, this node does not acknowledge that
// one, and takes others all the same.
func TestTakeWhileUnsettled(t *testing.T) {
	next := object("spare", []string{more}, nil)
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}), next)
	w.start()
	w.saysEventually("prod", self+" "+four)
	w.flows.unsettle(errBusy)
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+other) })
	w.eventually("the flows to be waited for", func() bool { return w.flows.waited() > 0 })
	w.change("spare", func(e *v1.EgressIP) { give(e, more+" "+self) })
	w.saysEventually("spare", self+" "+more)
	if got := w.words("prod"); !slices.Equal(got, []string{self + " " + four}) {
		t.Errorf("the node says %v", got)
	}
	w.flows.unsettle(nil)
	w.saysEventually("prod")
}

// TestReleaseAfterRestart: an address that has moved while this node was restarted counts as released only when
// the bridge has all its flows: until then it keeps those of the earlier run, which let this node answer.
func TestReleaseAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four}, []string{four + " " + other}, self+" "+four))
		w.left.held = []netip.Addr{netip.MustParseAddr(four)}
		w.flows.incomplete = true
		w.start()
		fakeapi.Settle()
		if got := w.words("prod"); !slices.Equal(got, []string{self + " " + four}) {
			t.Errorf("the node says %v", got)
		}
		w.flows.complete()
		w.saysEventually("prod")
		if !w.flows.settled() {
			t.Error("packets use flows from before the release")
		}
	})
}

// TestGateOutlivesTranslations: the suppression of a deleted EgressIP's address stays as long as OVN
// translates to the address, and therefore answers for it; other suppressions end.
func TestGateOutlivesTranslations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four, more, six}, []string{four + " " + self, more + " " + other, six + " " + self}))
		w.ovn.first = []host.Translation{translation("10.244.1.3", four)}
		w.start()
		w.saysEventually("prod", self+" "+four+" "+six)
		if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the other gates to end", func() bool { return slices.Equal(w.gated(four, more, six), []string{four}) })
		<-time.After(time.Hour)
		if got := w.gated(four); len(got) != 1 {
			t.Error("OVN may answer for an address that is nobody's here")
		}
		w.ovn.changes <- nil
		w.eventually("the last gate to end", func() bool { return len(w.gated(four, more, six)) == 0 })
	})
}

// TestGateWhileTranslationsUnknown: the suppression of a deleted EgressIP's address stays until it is known whether OVN translates to
// the address.
func TestGateWhileTranslationsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
		w.ovn.silent = true
		w.start()
		w.saysEventually("prod", self+" "+four)
		if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		if got := w.gated(four); len(got) != 1 {
			t.Error("OVN may answer for an address that is nobody's here")
		}
	})
}

// TestEndedWhileDown: addresses of an earlier run that no EgressIP has any more when a node
// starts are suppressed until OVN no longer translates to them, and then their connections are
// forgotten. Addresses that this node still holds stay, as do those of other nodes.
func TestEndedWhileDown(t *testing.T) {
	const kept, gone, moved, lingering = four, more, "172.18.0.36", "fc00:f853:ccd:e793::36"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{kept, moved}, []string{kept + " " + self, moved + " " + other}, self+" "+kept, other+" "+moved))
		w.left.held = []netip.Addr{netip.MustParseAddr(kept), netip.MustParseAddr(gone), netip.MustParseAddr(moved)}
		w.left.suppressed = []netip.Addr{netip.MustParseAddr(lingering)}
		w.ovn.first = []host.Translation{translation("10.244.1.3", gone)}
		w.start()
		w.eventually("what has ended to be suppressed", func() bool {
			return slices.Equal(w.gated(kept, gone, moved, lingering), []string{gone, moved, lingering})
		})
		var did []string
		forgotten := func(a string) bool {
			did = append(did, w.did()...)
			return slices.Contains(did, "forget "+a)
		}
		w.eventually("connections with what has moved and what was about to end to be forgotten", func() bool {
			return forgotten(moved) && forgotten(lingering)
		})
		w.eventually("only what OVN translates to to stay suppressed", func() bool {
			return slices.Equal(w.gated(kept, gone, moved, lingering), []string{gone, moved})
		})
		did = nil // also once when it was released
		w.ovn.changes <- nil
		w.eventually("connections with what has ended to be forgotten", func() bool { return forgotten(gone) })
		if forgotten(kept) || strings.Contains(strings.Join(did, " "), "forget "+moved) {
			t.Errorf("did %q", did)
		}
	})
}
