package master

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// TestLag: ovn-northd may need longer for one pass over a large cluster than a chassis is waited for. What has been waited for
// in vain is found all the same: an address is served, moves, and loses its former translation. No node is blamed.
func TestLag(t *testing.T) {
	for _, lag := range []time.Duration{podStartTimeout / 2, podStartTimeout - time.Second, podStartTimeout + time.Second, 3 * podStartTimeout} {
		t.Run(lag.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := impatient(t, "172.18.0.33")
				w.barrier.lags(lag)
				w.start()
				eventually := func(what string, ok func() bool) {
					t.Helper()
					<-time.After(8 * lag)
					w.eventually(what, ok)
				}
				eventually("the address to be served", func() bool { return w.is(prod, v1.ConditionProgrammed) })
				first := w.holder(prod, "172.18.0.33")
				w.changeNode(first, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
				eventually("it to move", func() bool {
					return w.is(prod, v1.ConditionProgrammed) && w.hops(web, webV4) == hopOf[other(first)] && w.nats(web) == other(first)+":172.18.0.33"
				})
				w.attach("prod/new", "ovn-control-plane", "10.244.0.9")
				eventually("a new pod to be served", func() bool {
					return w.is(prod, v1.ConditionProgrammed) && !w.isMarked("prod/new") && w.hops("prod/new", "10.244.0.9") == hopOf[other(first)]
				})
				for _, node := range []string{first, other(first)} {
					if w.master.stuckChassis.TimedOut(node) {
						t.Errorf("%s is blamed", node)
					}
				}
			})
		})
	}
}

// TestLagEnds: a chassis is not blamed for a long pass of ovn-northd that ends while others are asked whether they answer, or
// just afterwards.
func TestLagEnds(t *testing.T) {
	for _, after := range []time.Duration{otherChassisTimeout / 2, otherChassisTimeout * 9 / 10} {
		synctest.Test(t, func(t *testing.T) {
			w := impatient(t, "172.18.0.33")
			w.start()
			first := w.programmed(prod)
			w.barrier.lags(podStartTimeout + after)
			w.attach("prod/new", "ovn-control-plane", "10.244.0.9")
			synctest.Wait()
			w.barrier.lags(otherChassisTimeout * 3 / 4)
			w.notBlamed(first)
		})
	}
}

// TestLagOfSeveral: nor is it blamed if pods begin to wait one after the other.
func TestLagOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := impatient(t, "172.18.0.33")
		w.start()
		first := w.programmed(prod)
		w.barrier.lags(2*podStartTimeout + otherChassisTimeout)
		w.attach("prod/new", "ovn-control-plane", "10.244.0.9")
		<-time.After(podStartTimeout + otherChassisTimeout/4)
		w.attach("prod/next", "ovn-control-plane", "10.244.0.10")
		w.notBlamed(first)
	})
}

// notBlamed checks for half a minute that the chassis of a node is not blamed, and that the node keeps the address.
func (w *world) notBlamed(node string) {
	w.t.Helper()
	for range 120 {
		<-time.After(time.Second / 4)
		synctest.Wait()
		if w.master.stuckChassis.TimedOut(node) {
			w.t.Fatal("the chassis is blamed")
		}
	}
	if got := w.programmed(prod); got != node {
		w.t.Errorf("the address is with %s", got)
	}
}

// TestLagOfEarlierTranslation: a translation that was removed and written again is waited for anew, since a chassis may have applied
// only the former one, whether that was waited for in vain or still is.
func TestLagOfEarlierTranslation(t *testing.T) {
	for _, c := range []struct{ lag, removed, again time.Duration }{
		{time.Minute, 2 * podStartTimeout, 30 * time.Second},
		{podStartTimeout + 2*time.Second, podStartTimeout + time.Second/2, time.Second / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := serving(t, "172.18.0.33")
			first := w.holder(prod, "172.18.0.33")
			w.barrier.lags(c.lag)
			assignable := func(node string, is bool) {
				w.changeNode(node, func(n *corev1.Node) {
					if delete(n.Labels, kube.LabelEgressAssignable); is {
						n.Labels[kube.LabelEgressAssignable] = ""
					}
				})
			}
			both := "ovn-worker2:172.18.0.33 ovn-worker:172.18.0.33"
			move := func(to string) {
				assignable(to, true)
				assignable(other(to), false)
			}
			move(other(first))
			w.eventually("the next translation", func() bool { return w.nats(web) == both })
			<-time.After(c.removed)
			move(first)
			w.eventually("it to go", func() bool { return w.nats(web) == first+":172.18.0.33" })
			<-time.After(c.again)
			move(other(first))
			w.eventually("it to be written again", func() bool { return w.nats(web) == both })
			again := time.Now()
			<-time.After(c.lag - time.Second)
			synctest.Wait()
			if got := w.hops(web, webV4); got != hopOf[first] {
				t.Errorf("led to %s after %s", got, time.Since(again))
			}
			<-time.After(2 * podStartTimeout)
			w.eventually("the pod to be led to the other node", func() bool { return w.hops(web, webV4) == hopOf[other(first)] })
		})
	}
}
