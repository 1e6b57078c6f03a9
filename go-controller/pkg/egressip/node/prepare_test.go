package node

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

const onDummy = "10.10.10.5"

// from makes a node retain the addresses of an EgressIP.
func from(e *v1.EgressIP, node string) {
	for i := range e.Status.Items {
		e.Status.Items[i].From = node
	}
}

// toSelf returns an EgressIP whose address this node is to take from another one.
func toSelf(addr string) *v1.EgressIP {
	e := object("prod", []string{addr}, []string{addr + " " + self}, other+" "+addr)
	from(e, other)
	return e
}

// awaits reports whether a node reports that it is prepared for an address.
func (w *world) awaits(addr string) bool {
	status, _ := egressip.NodeStatusOf(w.get("prod").Status, self)
	return slices.Equal(status.Awaiting, []string{addr})
}

// TestPrepare: a node that is to take an address from another one prepares, reports this, and takes
// the address when the items no longer let the other node retain it and the other node has released it.
func TestPrepare(t *testing.T) {
	for _, addr := range []string{four, six, onDummy} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, toSelf(addr))
			w.start()
			has := func() bool {
				if addr == onDummy {
					return strings.Contains(w.dump(), "dummy 10.10.10.5/32")
				}
				return len(w.gated(addr)) == 0
			}
			fakeapi.Settle()
			if !w.awaits(addr) || has() {
				t.Errorf("%s: says %+v, has it: %v", addr, w.get("prod").Status.Programmed, has())
			}
			if addr == onDummy && !strings.Contains(w.dump(), "-d 10.10.10.5/32") {
				t.Errorf("nothing is prepared:\n%s", w.dump())
			}
			// The other node is deleted: the master decides what happens with its entry.
			w.change("prod", func(e *v1.EgressIP) { e.Status.Programmed = e.Status.Programmed[1:] })
			fakeapi.Settle()
			if has() {
				t.Errorf("%s: takes it before it may", addr)
			}
			w.change("prod", func(e *v1.EgressIP) {
				e.Status.Programmed = append(e.Status.Programmed, v1.ProgrammedStatus{Node: other, EgressIPs: []string{addr}})
				from(e, "")
			})
			fakeapi.Settle()
			if has() || w.awaits(addr) {
				t.Errorf("%s: says %+v, has it: %v", addr, w.get("prod").Status.Programmed, has())
			}
			w.change("prod", func(e *v1.EgressIP) {
				e.Status.Programmed = slices.DeleteFunc(e.Status.Programmed, func(p v1.ProgrammedStatus) bool { return p.Node == other })
				if len(e.Status.Programmed) == 0 {
					e.Status.Programmed = nil
				}
			})
			w.saysEventually("prod", self+" "+addr)
			if !has() {
				t.Errorf("%s: says that it has it", addr)
			}
		})
	}
}

// TestPreparedWhenReady: a node whose network or bridge is not complete, or that lacks the
// link, is not considered prepared.
func TestPreparedWhenReady(t *testing.T) {
	for _, c := range []struct {
		name, addr string
		not        func(w *world)
		then       func(w *world)
	}{
		{"network", four, func(w *world) { w.ready = make(chan struct{}) }, func(w *world) { close(w.ready) }},
		{"bridge", four, func(w *world) { w.flows.incomplete = true }, func(w *world) {
			w.flows.mu.Lock()
			defer w.flows.mu.Unlock()
			w.flows.incomplete = false
		}},
		{"link", onDummy, func(w *world) { w.networks = w.networks[:1] }, func(w *world) { w.setNetworks(append(w.networks, dummy("dummy"))...) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, toSelf(c.addr))
				c.not(w)
				w.start()
				<-time.After(time.Minute)
				if w.awaits(c.addr) {
					t.Error("says that it is prepared")
				}
				c.then(w)
				w.eventually("it to be prepared", func() bool { return w.awaits(c.addr) })
			})
		})
	}
}

// TestGoesOnAnswering: a node continues to answer for an address that another one is to take as
// long as the items say so, even after a restart. It does not take an address that it does
// not have.
func TestGoesOnAnswering(t *testing.T) {
	for _, addr := range []string{four, six, onDummy} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, object("prod", []string{addr}, []string{addr + " " + self}))
			all := kube.Value(`["172.18.0.3/16","fc00:f853:ccd:e793::3/64","10.10.10.3/24"]`)
			if err := kube.PatchNode(t.Context(), w.kube, w.self(), kube.Metadata{Annotations: map[string]*string{kube.AnnotationHostAddresses: all}}); err != nil {
				t.Fatal(err)
			}
			stop := w.start()
			w.saysEventually("prod", self+" "+addr)
			fakeapi.Settle()
			before, writes := w.dump()+w.flows.Dump(), w.writes()
			w.did()
			w.change("prod", func(e *v1.EgressIP) {
				give(e, addr+" "+other)
				from(e, self)
				e.Status.Items[0].Network = "10.0.0.0/7" // of the other node
			})
			fakeapi.Settle()
			same := func(when string) {
				t.Helper()
				if got := w.dump() + w.flows.Dump(); got != before || w.writes() != writes {
					t.Errorf("%s: %s, %d writes:\n%s\nwant\n%s", addr, when, w.writes()-writes, got, before)
				}
				said := slices.DeleteFunc(w.did(), func(what string) bool { return what == "flows" })
				if len(said) > 0 || !slices.Equal(w.words("prod"), []string{self + " " + addr}) {
					t.Errorf("%s: %s: did %q, says %q", addr, when, said, w.words("prod"))
				}
			}
			same("while the other is to prepare")
			stop()
			stop = w.start()
			fakeapi.Settle()
			same("after a restart")
			w.change("prod", func(e *v1.EgressIP) { from(e, "") })
			w.saysEventually("prod")
			if addr == onDummy && strings.Contains(w.dump(), "dummy 10.10.10.5/32") || addr != onDummy && len(w.gated(addr)) == 0 {
				t.Errorf("%s: goes on answering", addr)
			}
			w.change("prod", func(e *v1.EgressIP) { from(e, self) })
			<-time.After(time.Minute)
			if e := w.get("prod"); egressip.Answers(e.Status, self, netip.MustParseAddr(addr)) {
				t.Errorf("%s: takes it: %+v", addr, e.Status)
			}
			stop()
		})
	}
}

// TestPreviousHolderUnknown: a node that prepares to take an address, and cannot read the Node that has it, or finds it
// without its annotations, tries again: packets of the connections of that node are handed on when the address moves.
func TestPreviousHolderUnknown(t *testing.T) {
	for addr, handedOn := range map[string]string{
		four: "mod_dl_dst:02:42:ac:12:00:04", six: "mod_dl_dst:02:42:ac:12:00:04",
		onDummy: "-j TEE --gateway 10.10.10.4", "fd10::5": "-j TEE --gateway fd10::4",
	} {
		for name, answer := range map[string]func() (runtime.Object, error){
			"not read": func() (runtime.Object, error) { return nil, errBusy },
			"bare":     func() (runtime.Object, error) { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}}, nil },
		} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, toSelf(addr))
				w.node(other, ".0.4", "00:04", "172.18.0.4/16", "10.10.10.4/24", "fd10::4/64")
				var fails atomic.Int64
				w.kube.PrependReactor("get", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
					if a.(clienttesting.GetAction).GetName() != other || fails.Add(1) > 3 {
						return false, nil, nil
					}
					n, err := answer()
					return true, n, err
				})
				w.start()
				fakeapi.Settle()
				if !w.awaits(addr) {
					t.Errorf("%s, %s: says %+v", addr, name, w.get("prod").Status.Programmed)
				}
				asked := fails.Load()
				w.change("prod", func(e *v1.EgressIP) { e.Status.Programmed = e.Status.Programmed[1:]; from(e, "") })
				w.saysEventually("prod", self+" "+addr)
				if got := w.dump() + w.flows.Dump(); !strings.Contains(got, handedOn) || asked != 4 {
					t.Errorf("%s, %s: read %d times, has\n%s", addr, name, asked, got)
				}
			})
		}
	}
}
