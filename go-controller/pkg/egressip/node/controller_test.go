package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
)

const (
	four = "172.18.0.33"
	more = "172.18.0.44"
	six  = "fc00:f853:ccd:e793::33"
)

// TestTake forgets old connections with the addresses that the items
// assign to this node, lets them pass, announces them to the neighbours, resolves next
// hops, and reports this last; addresses of other nodes stay suppressed.
func TestTake(t *testing.T) {
	w := newWorld(t, object("prod", []string{four, more, six}, []string{four + " " + other, more + " " + other, six + " " + other}))
	w.start()
	if got := w.gated(four, more, six); len(got) != 3 {
		t.Errorf("gated at first: %v", got)
	}
	golden.Check(t, "gates", w.flows.Dump())
	w.did()
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+self, more+" "+other, six+" "+self) })
	w.saysEventually("prod", self+" "+four+" "+six)
	if got := w.gated(four, more, six); !slices.Equal(got, []string{more}) {
		t.Errorf("gated: %v", got)
	}
	if got := w.opened(four, more, six); !slices.Equal(got, []string{four, six}) {
		t.Errorf("what comes for %v is handed to OVN", got)
	}
	did := slices.Compact(w.did()) // the same may be reported again until it is seen
	want := []string{"forget " + four, "forget " + six, "flows",
		"announce " + four + " on breth0", "ask for 172.18.0.1 as 172.18.0.3 on breth0",
		"announce " + six + " on breth0", "ask for fc00:f853:ccd:e793::1 as fc00:f853:ccd:e793::3 on breth0"}
	if len(did) != 8 || !slices.Equal(did[:7], want) || !strings.HasPrefix(did[7], "say ") {
		t.Errorf("did %q", did)
	}
}

// TestRefusedIsNotGated: an address without a node may belong to a Service.
func TestRefusedIsNotGated(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, nil), object("other", []string{more}, []string{more + " " + other}))
	w.start()
	if got := w.gated(four, more); !slices.Equal(got, []string{more}) {
		t.Errorf("gated: %v", got)
	}
	if strings.Contains(w.flows.Dump(), four) {
		t.Errorf("there are flows for an address that was not accepted:\n%s", w.flows.Dump())
	}
}

// TestPlannedMove: one node releases the address and then the other takes it.
func TestPlannedMove(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}, other+" "+four))
	w.start()
	if got := w.gated(four); len(got) != 1 {
		t.Error("answers for an address that another node holds")
	}
	if did := w.did(); slices.ContainsFunc(did, func(s string) bool { return s != "flows" }) {
		t.Errorf("did %q", did)
	}
	w.change("prod", func(e *v1.EgressIP) { e.Status.Programmed = nil })
	w.saysEventually("prod", self+" "+four)
	if got := w.gated(four); len(got) != 0 {
		t.Error("says that it holds what it does not answer for")
	}
	w.did()
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+other) })
	w.saysEventually("prod")
	did := slices.Compact(w.did()) // the same may be reported again until it is seen
	if len(did) != 3 || did[0] != "stop announcing "+four || did[1] != "flows" || !strings.HasPrefix(did[2], "say ") {
		t.Errorf("did %q", did)
	}
	if got := w.gated(four); len(got) != 1 {
		t.Error("goes on answering")
	}
	if got := w.opened(four); len(got) != 0 {
		t.Error("goes on handing it to OVN")
	}
}

// TestHandedOn: packets of unknown connections are forwarded to the previous holder of the
// address for a while.
func TestHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}, other+" "+four))
		w.node(other, ".0.4", "00:04")
		w.start()
		w.change("prod", func(e *v1.EgressIP) { e.Status.Programmed = nil })
		w.saysEventually("prod", self+" "+four)
		golden.Check(t, "handed-on", w.flows.Dump())
		w.eventually("strays to be OVN's", func() bool { return slices.Equal(w.opened(four), []string{four}) })
	})
}

// TestOwnNetworkUnknown: while this node's object lacks its annotations, since it was deleted and created again, the
// node keeps what it holds, and takes nothing: an address of its own network looks like one of another network.
func TestOwnNetworkUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}), object("next", []string{more}, []string{more + " " + other}),
			object("gone", []string{six}, []string{six + " " + self}))
		stop := w.start()
		w.saysEventually("prod", self+" "+four)
		w.saysEventually("gone", self+" "+six)
		nodes := w.kube.CoreV1().Nodes()
		bare := node()
		bare.UID, bare.Annotations = "another", nil
		if err := errors.Join(nodes.Delete(t.Context(), self, metav1.DeleteOptions{}), w.kube.Tracker().Add(bare)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the watches of different objects are not ordered
		check := func(when string) {
			t.Helper()
			w.change("next", func(e *v1.EgressIP) { give(e, more+" "+self) })
			w.change("prod", func(e *v1.EgressIP) { e.Labels = map[string]string{"when": when} })
			<-time.After(10 * time.Second)
			synctest.Wait()
			if got := w.dump(); w.writes() > 0 || w.recorded() != "" {
				t.Errorf("%s: takes addresses of its own network for others, and recorded %s:\n%s", when, w.recorded(), got)
			}
			if got := w.gated(four, more); !slices.Equal(got, []string{more}) {
				t.Errorf("%s: gated %v", when, got)
			}
			if got, next := w.words("prod"), w.words("next"); !slices.Equal(got, []string{self + " " + four}) || len(next) > 0 {
				t.Errorf("%s: says %q, %q", when, got, next)
			}
		}
		check("while it runs")
		w.change("gone", func(e *v1.EgressIP) { give(e, six+" "+other) })
		w.saysEventually("gone") // a release needs no network
		stop()
		synced := make(chan struct{})
		go func() {
			defer close(synced)
			w.start()
		}()
		check("after a restart")
		select {
		case <-synced:
			t.Error("what an earlier run left may be deleted, though it is not known which networks that is on")
		default:
		}
		whole := node()
		whole.UID = bare.UID
		if _, err := nodes.Update(t.Context(), whole, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-synced
		w.saysEventually("next", self+" "+more)
		w.saysEventually("prod", self+" "+four)
		if w.writes() > 0 {
			t.Errorf("has\n%s", w.dump())
		}
	})
}

// TestRestart: a restart writes nothing to the API and lets the same addresses pass as before.
func TestRestart(t *testing.T) {
	w := newWorld(t, object("prod", []string{four, more}, []string{four + " " + self, more + " " + other}))
	stop := w.start()
	w.saysEventually("prod", self+" "+four)
	before := w.flows.Dump()
	stop()
	w.did()
	w.start()
	if did := w.did(); len(did) != 0 || w.flows.Dump() != before {
		t.Errorf("did %q\n%s", did, w.flows.Dump())
	}
}

// TestComeBack: a returning node never answers for addresses assigned to another node meanwhile, though
// its own status entry still exists, and removes the entry.
func TestComeBack(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + other}, self+" "+four))
	w.start()
	if got := w.gated(four); len(got) != 1 {
		t.Error("answers for what it does not hold any more")
	}
	w.saysEventually("prod")
}

// TestComeBackInTime: a node whose addresses are assigned to another one just when it
// returns does not answer for them in between.
func TestComeBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}, self+" "+four))
		w.silence = 2 * time.Second
		w.begun = func() {
			dead := object("prod", []string{four}, []string{four + " " + other})
			if _, err := w.api.EgressIPV1().EgressIPs().UpdateStatus(context.Background(), dead, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}
		w.start()
		if got := w.gated(four); len(got) != 1 {
			t.Error("answers for what it does not hold any more")
		}
		if did := w.did(); !slices.Equal(did, []string{"flows"}) {
			t.Errorf("did %q", did)
		}
	})
}

// TestDeleted: the node releases the address, and keeps the suppression while the gateway router may still have
// the translation.
func TestDeleted(t *testing.T) {
	w := newWorld(t, object("prod", []string{four, more}, []string{four + " " + self, more + " " + other}))
	w.start()
	w.saysEventually("prod", self+" "+four)
	if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), "prod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the address to be gated", func() bool { return len(w.gated(four)) == 1 })
	if got := w.gated(more); len(got) != 1 {
		t.Error("the other address is not gated any more")
	}
	// Recreated at once, it is a different object.
	fresh := object("prod", []string{four}, []string{four + " " + self})
	fresh.UID = "another"
	if _, err := w.api.EgressIPV1().EgressIPs().Create(t.Context(), fresh, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.saysEventually("prod", self+" "+four)
	if got := w.gated(four); len(got) != 0 {
		t.Error("gated, though held")
	}
}

// TestGatesEnd: the suppression of deleted EgressIPs' addresses ends after a while, however
// many there were at the same time.
func TestGatesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("first", []string{four}, []string{four + " " + self}), object("second", []string{more}, []string{more + " " + other}))
		w.start()
		w.saysEventually("first", self+" "+four)
		for name, addr := range map[string]string{"first": four, "second": more} {
			if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.eventually("the address to be gated", func() bool { return len(w.gated(addr)) == 1 })
		}
		w.eventually("both gates to end", func() bool { return len(w.gated(four, more)) == 0 })
	})
}

// TestNotReady: a node takes nothing before its network is set up, and keeps
// its addresses.
func TestNotReady(t *testing.T) {
	w := newWorld(t, object("prod", []string{four, more}, []string{four + " " + self, more + " " + self}, self+" "+four))
	w.ready = make(chan struct{})
	w.start()
	if got := w.gated(four, more); !slices.Equal(got, []string{more}) {
		t.Errorf("gated: %v", got)
	}
	close(w.ready)
	w.saysEventually("prod", self+" "+four+" "+more)
}

// TestBridgeAway: a node reports nothing while the bridge does not have the flows.
func TestBridgeAway(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, nil))
	w.start()
	w.flows.mu.Lock()
	w.flows.incomplete = true
	w.flows.mu.Unlock()
	w.did()
	w.change("prod", func(e *v1.EgressIP) { give(e, four+" "+self) })
	w.eventually("the gate to be lifted", func() bool { return len(w.gated(four)) == 0 })
	if did := w.did(); slices.ContainsFunc(did, func(s string) bool { return s != "flows" && s != "forget "+four }) {
		t.Errorf("did %q", did)
	}
	w.flows.mu.Lock()
	w.flows.incomplete = false
	w.flows.mu.Unlock()
	w.saysEventually("prod", self+" "+four)
}

// TestOthersWords: two nodes write their first status entries at the same time.
func TestOthersWords(t *testing.T) {
	w := newWorld(t, object("prod", []string{four, more}, []string{four + " " + self, more + " " + other}))
	raced := false
	w.api.PrependReactor("patch", "egressips", func(clienttesting.Action) (bool, runtime.Object, error) {
		if raced {
			return false, nil, nil
		}
		raced = true
		w.meanwhile("prod", func(e *v1.EgressIP) {
			e.Status.Programmed = []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{more}}}
		})
		return true, nil, errBusy
	})
	w.start()
	w.saysEventually("prod", other+" "+more, self+" "+four)
}

// TestTakenAwayMeanwhile: the items change while the node is about to report that it
// holds an address. It does not report it.
func TestTakenAwayMeanwhile(t *testing.T) {
	w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
	raced := false
	w.api.PrependReactor("patch", "egressips", func(clienttesting.Action) (bool, runtime.Object, error) {
		if raced {
			return false, nil, nil
		}
		raced = true
		w.meanwhile("prod", func(e *v1.EgressIP) { give(e, four+" "+other) })
		return false, nil, nil
	})
	w.start()
	w.eventually("the address to be gated again", func() bool { return len(w.gated(four)) == 1 })
	w.saysEventually("prod")
}

// TestSameAddressTwice: the younger EgressIP gets the address of a deleted one.
func TestSameAddressTwice(t *testing.T) {
	w := newWorld(t, object("old", []string{four}, []string{four + " " + self}), object("young", []string{four}, nil))
	w.start()
	w.saysEventually("old", self+" "+four)
	if got := w.gated(four); len(got) != 0 {
		t.Error("the address is gated for the sake of who may not have it")
	}
	if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.change("young", func(e *v1.EgressIP) { give(e, four+" "+self) })
	w.saysEventually("young", self+" "+four)
	w.eventually("the address to be let through", func() bool { return len(w.gated(four)) == 0 })
}
