package master

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// impatient is a world with a short acknowledgement timeout.
func impatient(t *testing.T, ips ...v1.Address) *world {
	w := newWorld(t, egress(prod, ips))
	w.limit = 5 * time.Second
	w.pod(web, "ovn-control-plane", webV4, webV6)
	return w
}

// TestNodeDoesNotTake: an address that its node does not take goes to another one, and never
// to a node that is known not to acknowledge.
func TestNodeDoesNotTake(t *testing.T) {
	for _, ip := range []v1.Address{"172.18.0.33", "172.19.0.33", "fc00:f853:ccd:e793::33"} {
		t.Run(string(ip), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.limit = 5 * time.Second
				w.pod(web, "ovn-control-plane", webV4, webV6)
				w.freeze("ovn-worker", true)
				w.freeze("ovn-worker2", true)
				w.start()
				w.create(egress(prod, []v1.Address{ip}))
				w.eventually("a node to be chosen", func() bool { return w.holder(prod, string(ip)) != "" })
				first := w.holder(prod, string(ip))
				w.freeze(other(first), false)
				if got := w.programmed(prod); got != other(first) {
					t.Errorf("held by %q", got)
				}
				w.event("moves from node " + first + " to node " + other(first) + ": " + first + " has not acknowledged in time what it was given")
				w.create(egress("next", []v1.Address{"172.18.0.55"}, func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels = map[string]string{"app": "db"} }))
				w.programmed("next")
				if got := w.holder("next", "172.18.0.55"); got != other(first) {
					t.Errorf("the next address went to %q", got)
				}
			})
		})
	}
}

// TestNobodyTakes: if no node acknowledges, addresses do not move back and forth, and condition
// and Event name the node. The first status entry of that node ends this.
func TestNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := impatient(t, "172.18.0.33")
		w.changeNode("ovn-worker2", func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
		w.freeze("ovn-worker", true)
		w.start()
		w.eventually("the condition", func() bool { return w.reason(prod, v1.ConditionProgrammed) == egressip.ReasonNotAcknowledged })
		w.event("NotAcknowledged node ovn-worker does not take 172.18.0.33, and no other node can")
		if got := w.holder(prod, "172.18.0.33"); got != "ovn-worker" {
			t.Errorf("it is with %q", got)
		}
		w.freeze("ovn-worker", false)
		w.programmed(prod)
	})
}

// TestNodeDoesNotLetGo: an address that its node does not release is not held by another node. New
// pods start and leave with it through that node, which continues to translate; condition and Event
// say what to do. When the node acts again, it hands over the address.
func TestNodeDoesNotLetGo(t *testing.T) {
	for _, c := range []struct{ ip, pod, hop string }{
		{"172.18.0.33", "10.244.0.9", ""},
		{"fc00:f853:ccd:e793::33", "fd00:10:244:1::9", "fd98::"},
	} {
		t.Run(c.ip, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := impatient(t, v1.Address(c.ip))
				w.start()
				first := w.programmed(prod)
				hops := map[string]string{"ovn-worker": "100.64.0.3", "ovn-worker2": "100.64.0.4"}
				if c.hop != "" {
					hops = map[string]string{"ovn-worker": "fd98::3", "ovn-worker2": "fd98::4"}
				}
				w.freeze(first, true)
				w.changeNode(first, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
				w.eventually("the condition", func() bool { return w.reason(prod, v1.ConditionProgrammed) == egressip.ReasonNotAcknowledged })
				w.event("NotAcknowledged " + c.ip + " stays with node " + first)
				w.attach("prod/new", "ovn-control-plane", c.pod)
				w.eventually("the new pod to start", func() bool { return !w.isMarked("prod/new") })
				if got := w.hops("prod/new", c.pod); got != hops[first] {
					t.Errorf("the new pod is led to %s", got)
				}
				for _, nodeStatus := range w.get(prod).Status.Programmed {
					if nodeStatus.Node != first {
						t.Errorf("%+v", nodeStatus)
					}
				}
				w.freeze(first, false)
				w.programmed(prod)
				w.eventually("the new pod to follow", func() bool {
					return w.hops("prod/new", c.pod) == hops[other(first)] && w.nats("prod/new") == other(first)+":"+c.ip
				})
			})
		})
	}
}

// TestOVNControllerHangs: an address goes to a node on which new translations come into
// force. If the chassis of all nodes lag behind, the databases are the cause: nothing moves.
func TestOVNControllerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := impatient(t, "172.18.0.33")
		w.start()
		first := w.programmed(prod)
		w.barrier.stop("all", true)
		w.pod("prod/other", "ovn-control-plane", "10.244.0.9")
		w.eventually("the wait to end a few times", func() bool { return w.reason(prod, v1.ConditionProgrammed) == egressip.ReasonWaitingForPolicies })
		if got := w.holder(prod, "172.18.0.33"); got != first || w.master.stuckChassis.TimedOut(first) {
			t.Errorf("it went to %q", got)
		}
		w.barrier.stop("chassis-"+first, true)
		w.barrier.stop("all", false)
		w.eventually("the other node to have it", func() bool {
			return w.is(prod, v1.ConditionProgrammed) && w.holder(prod, "172.18.0.33") == other(first)
		})
		w.event("moves from node " + first + " to node " + other(first) + ": " + first + " has an ovn-controller that does not apply changes")
		for _, pod := range []struct{ key, addr string }{{web, webV4}, {"prod/other", "10.244.0.9"}} {
			if got := w.hops(pod.key, pod.addr); got != hopOf[other(first)] {
				t.Errorf("%s is led to %s", pod.key, got)
			}
		}
	})
}

// TestAllTooSlow: a new address goes to a node that did not acknowledge in time if no
// other node can have it: the node was merely slow, and owes no other acknowledgement.
func TestAllTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := impatient(t, "172.18.0.33")
		w.limit = 5 * time.Second
		w.freeze("ovn-worker", true)
		w.freeze("ovn-worker2", true)
		w.start()
		w.eventually("both to be too slow", func() bool {
			return w.master.ackTimeouts.TimedOut("ovn-worker") && w.master.ackTimeouts.TimedOut("ovn-worker2")
		})
		w.remove(egress(prod, nil))
		w.freeze("ovn-worker", false)
		w.freeze("ovn-worker2", false)
		w.create(egress("next", []v1.Address{"172.18.0.55"}))
		before := time.Now()
		w.programmed("next")
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestPauseExtended: a node whose pause is extended eventually gets addresses
// again.
func TestPauseExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = "172.19.0.77"
		w := newWorld(t, egress("bound", []v1.Address{bound}))
		w.limit = 5 * time.Second
		w.start()
		slow := w.programmed("bound")
		w.freeze(slow, true)
		w.pod(web, "ovn-control-plane", webV4, webV6) // needs a rule of the node
		w.eventually("the node to be too slow", func() bool { return w.master.ackTimeouts.TimedOut(slow) })
		<-time.After(20 * time.Second) // it remains silent
		w.remove(egress("bound", nil))
		w.freeze(other(slow), true)
		w.create(egress("next", []v1.Address{"172.18.0.55"}))
		w.eventually("the other not to take the next", func() bool { return w.master.ackTimeouts.TimedOut(other(slow)) })
		w.freeze(slow, false)
		w.eventually("the address to come", func() bool { return w.holder("next", "172.18.0.55") == slow })
		w.programmed("next")
	})
}

// TestTimeStartsWhenShown: a node is not blamed for the time that it took to write what it is to do.
func TestTimeStartsWhenShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := impatient(t)
		w.start()
		w.stop() // so that nobody else does this
		d := egressip.Decision{Placements: []egressip.Placement{{Address: egressip.Address{Addr: addrs("172.18.0.33")[0]}, Node: "ovn-worker", Primary: true}}}
		status := v1.EgressIPStatus{Items: d.Items()}
		check := func(shown []v1.EgressIPStatusItem) bool {
			w.master.checkTimeouts("slow", d, status, shown)
			<-time.After(w.limit)
			w.master.checkTimeouts("slow", d, status, shown)
			return w.master.ackTimeouts.TimedOut("ovn-worker")
		}
		if check(nil) {
			t.Error("blamed for a write that has not been seen")
		}
		if !check(status.Items) {
			t.Error("not blamed at all")
		}
	})
}
