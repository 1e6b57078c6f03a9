package node

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestOvertaken: a node whose cache shows an assignment that has meanwhile moved to
// another node takes nothing; the cache may be outdated for any length of time.
func TestOvertaken(t *testing.T) {
	for name, moved := range map[string]func(*v1.EgressIP){
		"given to another": func(e *v1.EgressIP) { give(e, four+" "+other) },
		"taken by another": func(e *v1.EgressIP) {
			e.Status.Programmed = []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{four}}}
		},
		"made anew":           func(e *v1.EgressIP) { e.UID = "another" },
		"taken by nobody":     func(e *v1.EgressIP) { e.Status.Items = nil },
		"given and secondary": func(e *v1.EgressIP) { give(e, four+" "+other, more+" "+self) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, object("prod", []string{four}, []string{four + " " + self}))
			asked := make(chan struct{}, 100)
			w.api.PrependReactor("get", "egressips", func(clienttesting.Action) (bool, runtime.Object, error) {
				latest := object("prod", []string{four}, []string{four + " " + self})
				moved(latest)
				asked <- struct{}{}
				return true, latest, nil
			})
			w.start()
			for range 3 { // it asks repeatedly
				eventually.Receive(t, "the API server to be asked", asked)
			}
			if got := w.gated(four); !slices.Equal(got, []string{four}) {
				t.Errorf("answers for an address that is another's: gated %v", got)
			}
			if did := w.did(); slices.ContainsFunc(did, func(s string) bool { return s != "flows" }) {
				t.Errorf("did %q", did)
			}
		})
	}
}

// TestOvertakenMeanwhile: forgetting connections may take longer than the master waits for
// a node. An address that moves to another node in that time is not taken.
func TestOvertakenMeanwhile(t *testing.T) {
	w := newWorld(t)
	forgetting, goOn := make(chan struct{}), make(chan struct{})
	w.forget = func() {
		select {
		case forgetting <- struct{}{}:
		case <-goOn: // they are forgotten again
		}
		<-goOn
	}
	w.start()
	if err := w.api.Tracker().Add(object("prod", []string{four}, []string{four + " " + self})); err != nil {
		t.Fatal(err)
	}
	eventually.Receive(t, "connections to be forgotten", forgetting)
	w.change("prod", func(e *v1.EgressIP) {
		give(e, four+" "+other)
		e.Status.Programmed = []v1.ProgrammedStatus{{Node: other, EgressIPs: []string{four}}}
	})
	w.did()
	close(goOn)
	w.eventually("the gate", func() bool { return slices.Equal(w.gated(four), []string{four}) })
	if did := w.did(); slices.ContainsFunc(did, func(s string) bool { return strings.HasPrefix(s, "announce") }) {
		t.Errorf("did %q", did)
	}
}

// TestFormerWord: while a node has an address for one EgressIP, it leaves its status entry for
// another one in place, which keeps others from taking the address, and removes it after releasing the address.
func TestFormerWord(t *testing.T) {
	w := newWorld(t, object("former", []string{four}, []string{four + " " + self}))
	w.start()
	w.saysEventually("former", self+" "+four)
	for _, e := range []*v1.EgressIP{
		object("next", []string{four}, []string{four + " " + other}, self+" "+four),
		object("sentinel", []string{more}, []string{more + " " + self}),
	} {
		if err := w.api.Tracker().Add(e); err != nil {
			t.Fatal(err)
		}
	}
	w.saysEventually("sentinel", self+" "+more)
	if got := w.words("next"); !slices.Equal(got, []string{self + " " + four}) {
		t.Errorf("says %q of what it holds", got)
	}
	if got := w.gated(four); len(got) != 0 {
		t.Errorf("gated %v, though it holds it", got)
	}
	w.change("former", func(e *v1.EgressIP) { give(e) })
	w.saysEventually("former")
	w.saysEventually("next")
	if got := w.gated(four); len(got) != 1 {
		t.Error("goes on answering")
	}
}

// TestFormerWordOfReleasing: the status entry of a former holder stays until the address is released. That the node has
// begun to release it for a deleted EgressIP does not suffice.
func TestFormerWordOfReleasing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, object("former", []string{four}, []string{four + " " + self}))
		w.start()
		w.saysEventually("former", self+" "+four)
		announcing, goOn := make(chan struct{}), make(chan struct{})
		w.mu.Lock()
		w.announcing = func() {
			select {
			case announcing <- struct{}{}:
			case <-goOn: // it is announced again
			}
			<-goOn
		}
		w.mu.Unlock()
		if err := w.api.Tracker().Add(object("next", []string{four, six}, []string{four + " " + other, six + " " + self}, self+" "+four)); err != nil {
			t.Fatal(err)
		}
		<-announcing // after the gates that this EgressIP needs
		write := w.flows.block()
		if err := w.api.EgressIPV1().EgressIPs().Delete(t.Context(), "former", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		if got := w.words("next"); !slices.Equal(got, []string{self + " " + four}) || len(w.gated(four)) != 0 {
			t.Errorf("says %v, and keeps the gateway router from answering for %v", got, w.gated(four))
		}
		write()
		w.saysEventually("next", self+" "+six)
		if len(w.gated(four)) != 1 {
			t.Error("goes on answering")
		}
	})
}

// TestFormerWordMeanwhile: the master lists a node as the former holder of an address just when that node is about to
// change its status entry. The address stays listed until the node has released it.
func TestFormerWordMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error // of the node's first patch
		give string
		word string // its own entry before
		want string // and its entry once it has released the address
	}{
		{"which adds an address", nil, more + " " + self, "", self + " " + more},
		{"which adds an address, and fails", errBusy, more + " " + self, "", self + " " + more},
		{"which goes", nil, more + " " + other, self + " " + more, ""},
		{"which goes, and that fails", errBusy, more + " " + other, self + " " + more, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				others := other + " " + six
				words := []string{others}
				if c.word != "" {
					words = append(words, c.word)
				}
				w := newWorld(t, object("former", []string{four}, []string{four + " " + self}, self+" "+four),
					object("next", []string{four, more}, []string{c.give}, words...))
				raced := false
				w.api.PrependReactor("patch", "egressips", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if raced || action.(clienttesting.PatchAction).GetName() != "next" {
						return false, nil, nil
					}
					raced = true
					w.meanwhile("next", func(e *v1.EgressIP) {
						give(e, c.give, four+" "+other)
						former := v1.ProgrammedStatus{Node: self, EgressIPs: []string{four}}
						e.Status.Programmed = append(e.Status.Programmed[:1:1], former)
					})
					return c.err != nil, nil, c.err
				})
				stop := w.start()
				defer stop()
				fakeapi.Settle()
				if got := w.words("next"); !slices.Equal(got, []string{others, self + " " + four}) || !raced {
					t.Errorf("says %q of what it holds", got)
				}
				if got := w.gated(four); len(got) != 0 {
					t.Errorf("gated %v, though it holds it", got)
				}
				w.change("former", func(e *v1.EgressIP) { give(e) })
				want := []string{others}
				if c.want != "" {
					want = append(want, c.want)
				}
				w.saysEventually("next", want...)
				if got := w.gated(four); len(got) != 1 {
					t.Error("goes on answering")
				}
			})
		})
	}
}
