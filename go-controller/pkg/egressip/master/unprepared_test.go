package master

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// held are the addresses of these tests, with a pod created later and the next hops of
// its nodes by number.
var held = []struct {
	ip, pod string
	hops    map[string]string
}{
	{"172.18.0.33", "10.244.0.9", hopOf},
	{"172.19.0.33", "10.244.0.9", map[string]string{"ovn-worker": "10.244.1.2", "ovn-worker2": "10.244.2.2"}},
	{"fc00:f853:ccd:e793::33", "fd00:10:244:1::9", map[string]string{"ovn-worker": "fd98::3", "ovn-worker2": "fd98::4"}},
}

// leave makes a node unavailable for its addresses.
func (w *world) leave(node string) {
	w.changeNode(node, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
}

// stays fails if a node no longer answers for an address.
func (w *world) stays(node, addr string) {
	w.t.Helper()
	if e := w.get(prod); !egressip.Answers(e.Status, node, addrs(addr)[0]) || e.Status.Items[0].From != node {
		w.t.Fatalf("%s has let go of it: %+v", node, e.Status)
	}
}

// TestNodeDoesNotPrepare: an address stays on its node while its next node does
// not act, and goes to a third one after the acknowledgement timeout.
func TestNodeDoesNotPrepare(t *testing.T) {
	for _, c := range held {
		t.Run(c.ip, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := impatient(t, v1.Address(c.ip))
				w.start()
				first := w.programmed(prod)
				next := other(first)
				w.freeze(next, true)
				w.leave(first)
				w.eventually("the other to be chosen", func() bool { return w.holder(prod, c.ip) == next })
				w.changeNode("ovn-control-plane", func(n *corev1.Node) { n.Labels[kube.LabelEgressAssignable] = "" })
				<-time.After(4 * time.Second)
				w.stays(first, c.ip)
				w.eventually("the third to be chosen", func() bool { return w.holder(prod, c.ip) == "ovn-control-plane" })
				w.event(c.ip + " moves from node " + next + " to node ovn-control-plane: " + next + " has not acknowledged in time what it was given")
				if got := w.programmed(prod); got != "ovn-control-plane" || w.get(prod).Status.Items[0].From != "" {
					t.Errorf("held by %q: %+v", got, w.get(prod).Status)
				}
			})
		})
	}
}

// TestNobodyPrepares: if no node can take an address, it stays as long as necessary,
// new pods start and leave with it, and condition and Event say what to do. A restart of the
// master does not change this; when the next node acts, it takes the address.
func TestNobodyPrepares(t *testing.T) {
	for _, c := range held {
		t.Run(c.ip, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := impatient(t, v1.Address(c.ip))
				w.start()
				first := w.programmed(prod)
				next := other(first)
				w.freeze(next, true)
				w.leave(first)
				w.eventually("the condition", func() bool { return w.reason(prod, v1.ConditionProgrammed) == egressip.ReasonNotAcknowledged })
				w.event("NotAcknowledged node " + next + " does not prepare for " + c.ip + ", which stays with node " + first)
				w.stop()
				w.start()
				<-time.After(2 * time.Minute)
				w.stays(first, c.ip)
				w.attach("prod/new", "ovn-control-plane", c.pod)
				w.eventually("the new pod to start", func() bool { return !w.isMarked("prod/new") })
				if got := w.hops("prod/new", c.pod); got != c.hops[first] {
					t.Errorf("the new pod is led to %s", got)
				}
				w.freeze(next, false)
				if got := w.programmed(prod); got != next {
					t.Errorf("held by %q", got)
				}
				w.eventually("the new pod to follow", func() bool { return w.hops("prod/new", c.pod) == c.hops[next] })
			})
		})
	}
}

// TestNotTranslatedYet: while the chassis of the next node of an address does not
// have the translations in force, the previous node continues to answer, whatever restarts.
func TestNotTranslatedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, "172.18.0.33")
		first := w.holder(prod, "172.18.0.33")
		w.barrier.stop("all", true)
		w.leave(first)
		w.eventually("the other to be prepared", func() bool { return egressip.Awaits(w.get(prod).Status, other(first), addrs("172.18.0.33")[0]) })
		for range 2 {
			<-time.After(time.Minute)
			w.stays(first, "172.18.0.33")
			w.stop()
			w.start()
		}
		// Translations of a new decision are not known to be in force either.
		w.changeNode("ovn-control-plane", func(n *corev1.Node) { n.Labels[kube.LabelEgressAssignable] = "" })
		w.leave(other(first))
		w.eventually("the third to be prepared", func() bool {
			return egressip.Awaits(w.get(prod).Status, "ovn-control-plane", addrs("172.18.0.33")[0])
		})
		<-time.After(time.Minute)
		w.stays(first, "172.18.0.33")
		w.barrier.stop("all", false)
		w.programmed(prod)
	})
}

// TestPreparedOnce: a node that was prepared, and stopped before it could take the address,
// is not considered prepared when it is assigned the address again.
func TestPreparedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := impatient(t, "172.18.0.33")
		w.start()
		first := w.programmed(prod)
		next := other(first)
		w.barrier.stop("chassis-"+next, true)
		w.leave(first)
		w.eventually("the other to be prepared", func() bool { return egressip.Awaits(w.get(prod).Status, next, addrs("172.18.0.33")[0]) })
		w.freeze(next, true)
		w.changeNode(first, func(n *corev1.Node) { n.Labels[kube.LabelEgressAssignable] = "" })
		w.changeNode(next, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
		w.eventually("it to come back", func() bool { return w.holder(prod, "172.18.0.33") == first })
		w.barrier.stop("chassis-"+next, false)
		w.programmed(prod)
		w.changeNode(next, func(n *corev1.Node) { n.Labels[kube.LabelEgressAssignable] = "" })
		w.leave(first)
		w.eventually("the other to be chosen again", func() bool { return w.holder(prod, "172.18.0.33") == next })
		<-time.After(4 * time.Second)
		w.stays(first, "172.18.0.33")
	})
}

// TestOldNodeDies: an address does not wait for a dead node, whether or not the next
// one was prepared.
func TestOldNodeDies(t *testing.T) {
	for _, ip := range []v1.Address{"172.18.0.33", "172.19.0.33"} {
		synctest.Test(t, func(t *testing.T) {
			w := serving(t, ip)
			first := w.holder(prod, string(ip))
			w.freeze(other(first), true)
			w.leave(first)
			w.eventually("the other to be chosen", func() bool { return w.holder(prod, string(ip)) == other(first) })
			w.freeze(first, true)
			w.health.Set(first, place.Dead)
			w.freeze(other(first), false)
			if got := w.programmed(prod); got != other(first) {
				t.Errorf("held by %q", got)
			}
		})
	}
}

// TestAwaitingTakenAway: a part that the master removes from a node's status entry does not count as a sign of life
// of that node.
func TestAwaitingTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := impatient(t, "172.18.0.33")
		w.start()
		w.programmed(prod)
		late := []health.PendingAck{{Node: "ovn-worker", What: "take 172.18.0.44"}}
		w.master.ackTimeouts.SetPending("next", late)
		<-time.After(w.limit)
		w.master.ackTimeouts.SetPending("next", late)
		with := func(entries ...v1.ProgrammedStatus) *v1.EgressIP {
			return egress(prod, nil, func(e *v1.EgressIP) { e.Status.Programmed = entries })
		}
		awaits := with(v1.ProgrammedStatus{Node: "ovn-worker", Awaiting: []string{"172.18.0.33", "172.18.0.44"}})
		if back := w.master.observeStatuses(awaits, with(v1.ProgrammedStatus{Node: "ovn-worker", Awaiting: []string{"172.18.0.44"}})); back {
			t.Error("the node passes for one that acts")
		}
		if back := w.master.observeStatuses(with(), awaits); !back {
			t.Error("what it says itself does not count")
		}
	})
}
