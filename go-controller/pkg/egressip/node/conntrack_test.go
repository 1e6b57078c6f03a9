package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// dropsFrom tells whether what leaves with an address is dropped.
func (w *world) dropsFrom(addr string) bool {
	return slices.ContainsFunc(strings.Split(w.flows.Dump(), "\n"), func(f string) bool {
		return strings.Contains(f, "priority=104,in_port=PATCH,ip") && strings.Contains(f, "_src="+addr+",actions=drop")
	})
}

// TestForeign: what leaves with an address that this node does not hold is dropped, but
// for a while after a move.
func TestForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, addr := range []string{four, six} {
			w := newWorld(t, object("prod", []string{addr, more}, []string{addr + " " + self, more + " " + other}))
			stop := w.start()
			w.saysEventually("prod", self+" "+addr)
			if w.dropsFrom(addr) || !w.dropsFrom(more) {
				t.Errorf("of %s, which is held, and %s, which is not:\n%s", addr, more, w.flows.Dump())
			}
			w.did()
			w.change("prod", func(e *v1.EgressIP) { give(e, addr+" "+other, more+" "+other) })
			w.saysEventually("prod")
			if w.dropsFrom(addr) {
				t.Error("what pods that were led here send is dropped at once")
			}
			w.eventually("what leaves with it to be dropped", func() bool { return w.dropsFrom(addr) })
			w.eventually("its connections to be forgotten", func() bool { return slices.Contains(w.did(), "forget "+addr) })
			w.change("prod", func(e *v1.EgressIP) { give(e, addr+" "+self, more+" "+other) })
			w.saysEventually("prod", self+" "+addr)
			if w.dropsFrom(addr) {
				t.Error("dropped, though held again")
			}
			stop()
		}
	})
}

// TestEndForgotten: when an EgressIP has ended, no connection goes on under its address,
// and nothing is left on the bridge.
func TestEndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four, six}, []string{four + " " + self, six + " " + self}))
		w.start()
		w.saysEventually("prod", self+" "+four+" "+six)
		w.did()
		if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("what leaves with the addresses to be dropped", func() bool { return w.dropsFrom(four) && w.dropsFrom(six) })
		w.eventually("the flows to end", func() bool {
			return !strings.Contains(w.flows.Dump(), four) && !strings.Contains(w.flows.Dump(), six)
		})
		var did []string
		w.eventually("the connections to be forgotten", func() bool {
			did = append(did, w.did()...)
			return strings.Count(fmt.Sprint(did), "forget "+four) == 2 && strings.Count(fmt.Sprint(did), "forget "+six) == 2
		})
	})
}
