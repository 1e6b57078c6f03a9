package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
)

// dropsFrom reports whether packets from an address are dropped.
func (w *world) dropsFrom(addr string) bool {
	return slices.Contains(strings.Split(w.flows.Dump(), "\n"), string(bridge.SuppressARP(netip.MustParseAddr(addr), true)))
}

// TestForeign: packets from an address that this node does not hold are dropped, except
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

// TestEndedAtOnce: an address that an EgressIP no longer has is not used by its pods from the
// moment this node has released it: others may have it by then. Only an address that moves
// continues here for the pods that are still led here.
func TestEndedAtOnce(t *testing.T) {
	for what, end := range map[string]func(w *world){
		"deleted": func(w *world) {
			if err := w.api.EgressIPV1().EgressIPs().Delete(w.t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
		},
		"taken out, and given to another EgressIP on another node": func(w *world) {
			w.change("next", func(e *v1.EgressIP) { give(e, four+" "+other, six+" "+other) })
			w.change("prod", func(e *v1.EgressIP) { give(e, more+" "+other) })
		},
		"without a node": func(w *world) { w.change("prod", func(e *v1.EgressIP) { give(e) }) },
		"made anew under its name": func(w *world) {
			if err := w.api.EgressIPV1().EgressIPs().Delete(w.t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
			e := object("prod", []string{four, six}, []string{four + " " + other, six + " " + other})
			e.UID = "another"
			if _, err := w.api.EgressIPV1().EgressIPs().Create(w.t.Context(), e, metav1.CreateOptions{}); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, object("prod", []string{four, six}, []string{four + " " + self, six + " " + self}), object("next", []string{four, six}, nil))
				w.start()
				w.saysEventually("prod", self+" "+four+" "+six)
				end(w)
				<-time.After(time.Second)
				synctest.Wait()
				for _, a := range []string{four, six} {
					if !w.dropsFrom(a) {
						t.Errorf("what has %s leaves:\n%s", a, w.flows.Dump())
					}
				}
			})
		})
	}
}

// TestEndForgotten: when an EgressIP was deleted, no connection continues with its address,
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
