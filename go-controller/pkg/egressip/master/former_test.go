package master

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestAddressChangesHands: whichever EgressIP gets an address from another one, or from
// one of the same name, the previous holder is to release it, and the next node waits for that.
func TestAddressChangesHands(t *testing.T) {
	for _, c := range []struct {
		name string
		next string // the EgressIP that has it next
		do   func(w *world, addr string)
	}{
		{"made anew", prod, func(w *world, addr string) {
			w.remove(egress(prod, nil))
			w.create(egress(prod, []v1.Address{v1.Address(addr)}, func(e *v1.EgressIP) { e.UID = types.UID("another") }))
		}},
		{"renamed", "next", func(w *world, addr string) {
			w.remove(egress(prod, nil))
			w.create(egress("next", []v1.Address{v1.Address(addr)}))
		}},
		{"renamed, the other way round", "next", func(w *world, addr string) {
			w.create(egress("next", []v1.Address{v1.Address(addr)}))
			w.eventually("the refusal", func() bool { return w.is("next", v1.ConditionConflict) })
			w.remove(egress(prod, nil))
		}},
		{"moved", "next", func(w *world, addr string) {
			w.create(egress("next", []v1.Address{"172.18.0.99"}))
			w.programmed("next")
			w.changeEgressIP(prod, func(e *v1.EgressIP) { e.Spec.EgressIPs = []v1.Address{"172.18.0.98"} })
			w.changeEgressIP("next", func(e *v1.EgressIP) { e.Spec.EgressIPs = []v1.Address{v1.Address(addr)} })
		}},
	} {
		for _, addr := range []string{"172.18.0.33", "fc00:f853:ccd:e793::33", "172.19.0.33"} {
			t.Run(c.name+" "+addr, func(t *testing.T) {
				w := serving(t, v1.Address(addr))
				first := w.holder(prod, addr)
				// The previous node cannot have it again, and does not act.
				w.freeze(first, true)
				if addr == "172.19.0.33" {
					w.record(first, addr)
				}
				w.changeNode(first, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
				w.eventually("the other to be chosen", func() bool { return w.holder(prod, addr) == other(first) })
				c.do(w, addr)
				w.eventually("the next EgressIP to have it", func() bool { return w.holder(c.next, addr) == other(first) })
				w.eventually("the status to say who has it", func() bool { return w.reason(c.next, v1.ConditionProgrammed) == egressip.ReasonWaitingForNode })
				if e := w.get(c.next); !egressip.Answers(e.Status, first, addrs(addr)[0]) || egressip.Answers(e.Status, other(first), addrs(addr)[0]) {
					t.Errorf("words %+v", e.Status.Programmed)
				}
				w.freeze(first, false)
				w.programmed(c.next)
				if e := w.get(c.next); egressip.Answers(e.Status, first, addrs(addr)[0]) {
					t.Errorf("words %+v", e.Status.Programmed)
				}
			})
		}
	}
}

// record sets the record of the addresses on secondary networks that a node may have.
func (w *world) record(node string, texts ...string) {
	w.t.Helper()
	w.changeNode(node, func(n *corev1.Node) {
		n.Annotations[kube.AnnotationEgressIPAddresses] = kube.FormatEgressIPAddresses(addrs(texts...))
	})
}

// formers returns how many former holders the master remembers.
func (w *world) formers() (count int) {
	d := w.master.decisions
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, nodes := range d.former {
		count += len(nodes)
	}
	return count
}

// TestFormerHolderHasReleased: a node that is known to have released an address of a deleted EgressIP is not waited for,
// even if it does not act any more when another EgressIP gets the address.
func TestFormerHolderHasReleased(t *testing.T) {
	for _, c := range []struct {
		name, addr string
		do         func(w *world, first, addr string)
	}{
		{"it has removed the address from its record", "172.19.0.33", func(w *world, first, addr string) {
			w.record(first, addr, "172.19.0.44")
			w.remove(egress(prod, nil))
			w.record(first, "172.19.0.44")
		}},
		{"it has been dead", "172.18.0.33", func(w *world, first, _ string) {
			w.remove(egress(prod, nil))
			w.eventually("the former holder to be remembered", func() bool { return w.formers() == 1 })
			w.health.Set(first, place.Dead)
			w.eventually("the node to be down", func() bool { return w.master.nodeDown(first) })
			w.health.Set(first, place.Alive)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := serving(t, v1.Address(c.addr))
			first := w.holder(prod, c.addr)
			w.freeze(first, true)
			c.do(w, first, c.addr)
			w.changeNode(first, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
			w.create(egress("next", []v1.Address{v1.Address(c.addr)}))
			if got := w.programmed("next"); got != other(first) {
				t.Errorf("held by %q", got)
			}
			if n := w.formers(); n > 0 {
				t.Errorf("%d former holders are remembered", n)
			}
		})
	}
}

// TestFormerHolderNotListed: a former holder is remembered until a status lists it. One that the API server did not
// accept, since the EgressIP had just been deleted, does not.
func TestFormerHolderNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addr = "172.18.0.33"
		w := serving(t, addr)
		first := w.holder(prod, addr)
		w.freeze(first, true)
		w.remove(egress(prod, nil))
		w.eventually("the former holder to be remembered", func() bool { return w.formers() == 1 })
		w.changeNode(first, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
		fakeapi.Settle()
		refused := make(chan struct{}, 1000)
		w.egress.PrependReactor("patch", "egressips", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.(clienttesting.PatchAction).GetName() != "brief" {
				return false, nil, nil
			}
			refused <- struct{}{}
			return true, nil, apierrors.NewNotFound(v1.Resource("egressips"), "brief")
		})
		w.create(egress("brief", []v1.Address{addr}))
		<-refused
		fakeapi.Settle()
		if n := w.formers(); n != 1 {
			t.Errorf("%d former holders are remembered, and none is listed", n)
		}
		w.remove(egress("brief", nil))
		w.create(egress("next", []v1.Address{addr}))
		w.eventually("the next EgressIP to have it", func() bool { return w.holder("next", addr) == other(first) })
		if e := w.get("next"); !egressip.Answers(e.Status, first, addrs(addr)[0]) || egressip.Answers(e.Status, other(first), addrs(addr)[0]) {
			t.Errorf("words %+v", e.Status.Programmed)
		}
		w.freeze(first, false)
		w.programmed("next")
	})
}

// TestFormerHolderHoldsAgain: once a node holds the address for the next EgressIP, whose status says so, nothing need be
// remembered about the deleted one.
func TestFormerHolderHoldsAgain(t *testing.T) {
	const addr = "172.18.0.33"
	w := serving(t, addr)
	first := w.holder(prod, addr)
	w.changeNode(other(first), func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
	w.remove(egress(prod, nil))
	w.eventually("the former holder to be remembered", func() bool { return w.formers() == 1 })
	w.create(egress("next", []v1.Address{addr}))
	if got := w.programmed("next"); got != first || w.formers() > 0 {
		t.Errorf("held by %q, %d former holders are remembered", got, w.formers())
	}
}

// TestFormerHolderRecordUnseen: the informer may not show yet that a node has an address on record.
func TestFormerHolderRecordUnseen(t *testing.T) {
	const addr = "172.19.0.33"
	w := serving(t, addr)
	first := w.holder(prod, addr)
	w.stop() // the informers do not show what comes
	f := egressip.Former{Addr: addrs(addr)[0], Node: first}
	if released, err := w.master.hasReleased(t.Context(), f); !released || err != nil {
		t.Errorf("released %t, error %v without a record", released, err)
	}
	w.record(first, addr)
	if released, err := w.master.hasReleased(t.Context(), f); released || err != nil {
		t.Errorf("released %t, error %v with a record", released, err)
	}
}

// TestFormerHolderAfterRestart: a new leader has not seen the EgressIP for which a node got an address on a
// secondary network. The node's record of such addresses says that it may still have it.
func TestFormerHolderAfterRestart(t *testing.T) {
	const addr = "172.19.0.33"
	w := serving(t, addr)
	first := w.holder(prod, addr)
	w.freeze(first, true)
	w.changeNode(first, func(n *corev1.Node) {
		delete(n.Labels, kube.LabelEgressAssignable)
		n.Annotations[kube.AnnotationEgressIPAddresses] = kube.FormatEgressIPAddresses(addrs(addr))
	})
	w.stop()
	w.remove(egress(prod, nil))
	w.start()
	w.create(egress("next", []v1.Address{addr}))
	w.eventually("the next EgressIP to have it", func() bool { return w.holder("next", addr) == other(first) })
	w.eventually("the status to say who has it", func() bool { return w.reason("next", v1.ConditionProgrammed) == egressip.ReasonWaitingForNode })
	if e := w.get("next"); !egressip.Answers(e.Status, first, addrs(addr)[0]) || egressip.Answers(e.Status, other(first), addrs(addr)[0]) {
		t.Errorf("words %+v", e.Status.Programmed)
	}
	w.freeze(first, false)
	w.programmed("next")
}

// TestFormerHolderChosenFirst: the previous holder of an address is chosen again, but does not act. When the address
// then goes to another node, that node waits for it as for any other previous holder.
func TestFormerHolderChosenFirst(t *testing.T) {
	for _, c := range []struct {
		name string
		next string // the EgressIP that has it next
		do   func(w *world, addr string)
	}{
		{"made anew", prod, func(w *world, addr string) {
			w.remove(egress(prod, nil))
			w.create(egress(prod, []v1.Address{v1.Address(addr)}, func(e *v1.EgressIP) { e.UID = types.UID("another") }))
		}},
		{"renamed", "next", func(w *world, addr string) {
			w.remove(egress(prod, nil))
			w.create(egress("next", []v1.Address{v1.Address(addr)}))
		}},
		{"moved", "next", func(w *world, addr string) {
			w.changeEgressIP(prod, func(e *v1.EgressIP) { e.Spec.EgressIPs = []v1.Address{"172.18.0.98"} })
			w.create(egress("next", []v1.Address{v1.Address(addr)}))
		}},
	} {
		for _, addr := range []string{"172.18.0.33", "fc00:f853:ccd:e793::33", "172.19.0.33"} {
			t.Run(c.name+" "+addr, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := impatient(t, v1.Address(addr))
					w.start()
					first := w.programmed(prod)
					w.freeze(first, true)
					if addr == "172.19.0.33" {
						w.record(first, addr)
					}
					w.changeNode(other(first), func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
					synctest.Wait()
					c.do(w, addr)
					w.eventually("the next EgressIP to be with the same node", func() bool { return w.holder(c.next, addr) == first })
					w.changeNode(other(first), func(n *corev1.Node) { n.Labels[kube.LabelEgressAssignable] = "" })
					w.eventually("the other node to get it", func() bool { return w.holder(c.next, addr) == other(first) })
					w.eventually("the status to say who has it", func() bool { return w.reason(c.next, v1.ConditionProgrammed) == egressip.ReasonNotAcknowledged })
					if e := w.get(c.next); !egressip.Answers(e.Status, first, addrs(addr)[0]) || egressip.Answers(e.Status, other(first), addrs(addr)[0]) {
						t.Errorf("words %+v", e.Status.Programmed)
					}
					w.freeze(first, false)
					if got := w.programmed(c.next); got != other(first) {
						t.Errorf("held by %q", got)
					}
				})
			})
		}
	}
}

// TestFormerHolderChosenFirstAfterRestart is the same for a new leader, which knows it only from the node's record,
// and only until the node prepares for the address again. A node that has merely prepared is not waited for.
func TestFormerHolderChosenFirstAfterRestart(t *testing.T) {
	const addr = "172.19.0.33"
	for _, recorded := range []bool{true, false} {
		t.Run(fmt.Sprintf("recorded %t", recorded), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := impatient(t, addr)
				w.start()
				first := w.programmed(prod)
				record := func(n *corev1.Node) {
					n.Annotations[kube.AnnotationEgressIPAddresses] = kube.FormatEgressIPAddresses(addrs(addr))
				}
				w.freeze(first, true)
				if recorded {
					w.changeNode(first, record)
				}
				w.changeNode(other(first), func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
				w.stop()
				w.remove(egress(prod, nil))
				w.start()
				w.create(egress("next", []v1.Address{addr}))
				w.eventually("the next EgressIP to be with the same node", func() bool { return w.holder("next", addr) == first })
				w.changeNode(first, record)
				w.changeNode(other(first), func(n *corev1.Node) { n.Labels[kube.LabelEgressAssignable] = "" })
				w.eventually("the other node to get it", func() bool { return w.holder("next", addr) == other(first) })
				if !recorded {
					w.programmed("next")
					return
				}
				w.eventually("the status to say who has it", func() bool { return w.reason("next", v1.ConditionProgrammed) == egressip.ReasonNotAcknowledged })
				if e := w.get("next"); !egressip.Answers(e.Status, first, addrs(addr)[0]) || egressip.Answers(e.Status, other(first), addrs(addr)[0]) {
					t.Errorf("words %+v", e.Status.Programmed)
				}
			})
		})
	}
}

// TestFormerHolderIsSilent: a status entry in which the master adds a former holder is no sign of life of that node.
func TestFormerHolderIsSilent(t *testing.T) {
	const addr, more = "172.18.0.33", "fc00:f853:ccd:e793::44"
	for name, next := range map[string][]v1.Address{"a new entry": {addr}, "an entry that grows": {addr, more}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, egress(prod, []v1.Address{addr}), egress("more", []v1.Address{more}))
				w.limit = 5 * time.Second
				w.start()
				w.changeNode("ovn-worker2", func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
				w.eventually("one node to have both", func() bool {
					return w.programmed(prod) == "ovn-worker" && w.programmed("more") == "ovn-worker"
				})
				w.freeze("ovn-worker", true)
				w.changeNode("ovn-worker2", func(n *corev1.Node) { n.Labels[kube.LabelEgressAssignable] = "" })
				w.changeNode("ovn-worker", func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
				w.eventually("the node to be too slow", func() bool { return w.master.ackTimeouts.TimedOut("ovn-worker") })
				w.remove(egress(prod, nil))
				w.create(egress("next", []v1.Address{addr}))
				if len(next) > 1 {
					w.eventually("the entry", func() bool { return egressip.Answers(w.get("next").Status, "ovn-worker", addrs(addr)[0]) })
					w.remove(egress("more", nil))
					w.changeEgressIP("next", func(e *v1.EgressIP) { e.Spec.EgressIPs = next })
				}
				w.eventually("the entry to be complete", func() bool {
					for _, a := range next {
						if !egressip.Answers(w.get("next").Status, "ovn-worker", addrs(string(a))[0]) {
							return false
						}
					}
					return true
				})
				synctest.Wait()
				if !w.master.ackTimeouts.TimedOut("ovn-worker") {
					t.Error("the node counts as alive")
				}
				w.freeze("ovn-worker", false)
				w.eventually("the node to be heard", func() bool { return !w.master.ackTimeouts.TimedOut("ovn-worker") })
			})
		})
	}
}
