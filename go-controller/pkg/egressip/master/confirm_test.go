package master

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// reselect changes whether the EgressIP selects the pod, and waits for its policy.
func (w *world) reselect(selected bool) {
	w.t.Helper()
	app := map[bool]string{true: "web", false: "db"}[selected]
	w.changePod(web, func(p *corev1.Pod) { p.Labels["app"] = app })
	w.eventually("another policy", func() bool { return (w.hops(web, webV4) != "none") == selected })
}

// forgotten waits until the master has no state of pods any more.
func (w *world) forgotten() {
	w.t.Helper()
	w.eventually("the pods to be forgotten", func() bool {
		w.master.podStates.mu.Lock()
		defer w.master.podStates.mu.Unlock()
		return len(w.master.podStates.byKey) == 0
	})
}

// asked waits until the master waits for a chassis for the pod.
func (w *world) asked() {
	w.t.Helper()
	w.eventually("the chassis to be asked", func() bool {
		w.master.podStates.mu.Lock()
		defer w.master.podStates.mu.Unlock()
		return w.master.podStates.byKey[web] != nil && len(w.master.podStates.byKey[web].waits) == 1
	})
}

// stillTold checks that external gateways know of the pod's translation, from which they exempt the pod, although its
// policy has changed to hops, which its chassis has not confirmed.
func (w *world) stillTold(hops string) {
	w.t.Helper()
	w.eventually("the policy to be "+hops, func() bool { return w.hops(web, webV4) == hops })
	w.asked()
	if got, _ := w.pods.Addrs(); !slices.Equal(got, addrs(webV4)) || w.nats(web) == "" {
		w.t.Errorf("pods %v, translations %q", got, w.nats(web))
	}
}

// TestToldWhileTranslated: external gateways exempt a pod that is no longer selected from its translation until that
// is removed.
func TestToldWhileTranslated(t *testing.T) {
	w := serving(t, "172.18.0.33")
	w.barrier.stop("chassis-ovn-control-plane", true)
	w.reselect(false)
	w.stillTold("none")
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.eventually("the translation to go, and then the pod", func() bool {
		got, _ := w.pods.Addrs()
		return w.nats(web) == "" && len(got) == 0
	})
}

// revertedUnconfirmed is a world in which a pod was selected and deselected while its chassis confirmed nothing.
func revertedUnconfirmed(t *testing.T) *world {
	w := serving(t, "172.18.0.33")
	w.reselect(false)
	w.eventually("the translation to go", func() bool { return w.nats(web) == "" })
	w.barrier.stop("chassis-ovn-control-plane", true)
	w.reselect(true)
	w.reselect(false)
	return w
}

// TestRevertedUnconfirmed: a pod's chassis may still get a policy that was removed before the
// chassis confirmed it. Until the chassis has confirmed the removal, the translation stays.
func TestRevertedUnconfirmed(t *testing.T) {
	w := revertedUnconfirmed(t)
	if w.nats(web) == "" {
		t.Error("the translation went with the policy")
	}
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.eventually("the translation to go", func() bool { return w.nats(web) == "" })
	w.forgotten()
}

// TestHopRevertedUnconfirmed: so it is with the translation of a second address that the EgressIP
// had for a moment.
func TestHopRevertedUnconfirmed(t *testing.T) {
	w := serving(t, "172.18.0.33")
	first := w.nats(web)
	w.barrier.stop("chassis-ovn-control-plane", true)
	w.changeEgressIP(prod, func(e *v1.EgressIP) { e.Spec.EgressIPs = append(e.Spec.EgressIPs, "172.18.0.44") })
	w.eventually("both next hops", func() bool { return w.hops(web, webV4) == "100.64.0.3 100.64.0.4" })
	both := w.nats(web)
	w.changeEgressIP(prod, func(e *v1.EgressIP) { e.Spec.EgressIPs = e.Spec.EgressIPs[:1] })
	w.eventually("one next hop", func() bool { return w.hops(web, webV4) != "100.64.0.3 100.64.0.4" })
	if got := w.nats(web); got != both {
		t.Errorf("translations %q, want %q", got, both)
	}
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.eventually("the second translation to go", func() bool { return w.nats(web) == first })
	w.programmed(prod)
}

// TestRevertedBeforeRestart: a master that finds a translation without a policy does not know
// whether the chassis has confirmed that.
func TestRevertedBeforeRestart(t *testing.T) {
	w := revertedUnconfirmed(t)
	nats := w.nats(web)
	w.stop()
	w.start()
	w.asked()
	if got := w.nats(web); got != nats || nats == "" {
		t.Errorf("translations %q, want %q", got, nats)
	}
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.eventually("the translation to go", func() bool { return w.nats(web) == "" })
}

// TestMovedBeforeRestart: so it is if the previous leader led the pod to another node just before.
func TestMovedBeforeRestart(t *testing.T) {
	w := serving(t, "172.18.0.33")
	first := w.holder(prod, "172.18.0.33")
	w.barrier.stop("chassis-ovn-control-plane", true)
	w.changeNode(first, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
	w.eventually("the pod to be led to the other node", func() bool { return w.hops(web, webV4) == hopOf[other(first)] })
	nats := w.nats(web)
	w.stop()
	w.start()
	w.asked()
	if got := w.nats(web); got != nats || !strings.Contains(nats, " ") {
		t.Errorf("translations %q, want %q", got, nats)
	}
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.eventually("the former translation to go", func() bool { return w.nats(web) == other(first)+":172.18.0.33" })
}

// TestDriftAwaited: a policy that somebody else has changed may be in force on the pod's chassis. That it is
// corrected is waited for.
func TestDriftAwaited(t *testing.T) {
	w := serving(t, "172.18.0.33")
	w.barrier.stop("chassis-ovn-control-plane", true)
	if !w.nb.Remove(egressip.Owner(web), nbdb.LogicalRouterPolicyTable, webV4) {
		t.Fatal("there is no policy")
	}
	w.eventually("the policy", func() bool { return w.hops(web, webV4) != "none" })
	w.asked()
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.programmed(prod)
}

// TestGoneWithoutMaster: a pod that was deleted while no master ran may still be running, on a node
// that nobody knows any more. Its rows stay for as long as a chassis is waited for at most.
func TestGoneWithoutMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serving(t, "172.18.0.33")
		led, nats := w.hops(web, webV4), w.nats(web)
		w.stop()
		w.detach(web)
		w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}})
		w.start()
		<-time.After(podStartTimeout - time.Second)
		synctest.Wait()
		if got := w.hops(web, webV4); got != led || w.nats(web) != nats || nats == "" {
			t.Errorf("led to %s, translations %q, want %s, %q", got, w.nats(web), led, nats)
		}
		if !w.pods.Has(addrs(webV4)[0]) {
			t.Error("its traffic to nodes follows its policies")
		}
		w.eventually("the rows to go", func() bool { return w.nb.DumpFeature(egressip.Feature) == "" })
	})
}
