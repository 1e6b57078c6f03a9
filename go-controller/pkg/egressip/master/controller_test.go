package master

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

const (
	prod  = "egressip-prod"
	web   = "prod/web"
	webV4 = "10.244.0.3"
	webV6 = "fd00:10:244:1::3"
)

var (
	prodIPs = []v1.Address{"172.18.0.33", "172.18.0.44"}
	hopOf   = map[string]string{"ovn-worker": "100.64.0.3", "ovn-worker2": "100.64.0.4"}
)

// other returns the worker other than name.
func other(name string) string {
	return map[string]string{"ovn-worker": "ovn-worker2", "ovn-worker2": "ovn-worker"}[name]
}

// odd is the key of a pod whose plan panics in worlds that request it.
const odd = "prod/odd"

// TestPanicLetsGoOfThePods: a pod whose plan panics a few times is retried, and
// the other pods of its batch are served.
func TestPanicLetsGoOfThePods(t *testing.T) {
	w := newWorld(t, egress(prod, prodIPs))
	w.panics.Store(3)
	w.pod(web, "ovn-control-plane", webV4, webV6)
	w.pod(odd, "ovn-control-plane", "10.244.0.9", "fd00:10:244:1::9")
	w.start()
	w.programmed(prod)
	if left := w.panics.Load(); left >= 0 {
		t.Errorf("%d panics did not come", left)
	}
	for _, key := range []string{web, odd} {
		if len(w.db.Rows(egressip.Owner(key))) == 0 {
			t.Errorf("pod %s has no rows", key)
		}
	}
}

// serving is a world in which an EgressIP with the given addresses serves a pod.
func serving(t *testing.T, ips ...v1.Address) *world {
	w := newWorld(t, egress(prod, ips))
	w.pod(web, "ovn-control-plane", webV4, webV6)
	w.start()
	w.programmed(prod)
	return w
}

// programmed waits until an EgressIP is completely programmed, and returns the holder of its first
// address.
func (w *world) programmed(name string) string {
	w.t.Helper()
	w.eventually(name+" to be programmed", func() bool {
		e := w.get(name)
		c := meta.FindStatusCondition(e.Status.Conditions, v1.ConditionProgrammed)
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == e.Generation
	})
	return w.holder(name, string(w.get(name).Spec.EgressIPs[0]))
}

// TestServe is the example of the documentation: two addresses, one pod.
func TestServe(t *testing.T) {
	w := newWorld(t, egress(prod, prodIPs))
	w.pod(web, "ovn-control-plane", webV4, webV6)
	w.pod("dev/web", "ovn-control-plane", "10.244.0.4")
	w.start()
	w.eventually("both next hops", func() bool { return w.hops(web, webV4) == "100.64.0.3 100.64.0.4" })
	w.programmed(prod)
	first, second := w.holder(prod, "172.18.0.33"), w.holder(prod, "172.18.0.44")
	if first == second || first == "" || second == "" {
		t.Errorf("held by %q and %q", first, second)
	}
	if got, want := w.nats(web), []string{first + ":172.18.0.33", second + ":172.18.0.44"}; !slices.Equal(strings.Fields(got), slices.Sorted(slices.Values(want))) {
		t.Errorf("translations %s, want %s", got, want)
	}
	if got := w.hops(web, webV6); got != "none" {
		t.Errorf("IPv6 is led to %s", got)
	}
	if got := w.hops("dev/web", "10.244.0.4"); got != "none" {
		t.Errorf("a pod that is not chosen is led to %s", got)
	}
	// Nothing may be arranged for a family without an address, such as other ways for replies of Services.
	if got, complete := w.pods.Addrs(); !complete || !slices.Equal(got, addrs(webV4)) {
		t.Errorf("pods %v, complete %v", got, complete)
	}
	w.event("is to hold 172.18.0.33, which is in its network 172.18.0.0/16")
}

// TestRestartWritesNothing: a restart writes neither to the API nor to the database.
func TestRestartWritesNothing(t *testing.T) {
	w := newWorld(t, egress(prod, prodIPs), egress("refused", []v1.Address{"10.244.0.1", "172.18.0.33"}, func(e *v1.EgressIP) {
		e.CreationTimestamp = metav1.Time{Time: born.Add(1)}
	}))
	w.create(egress("outside", []v1.Address{"172.19.0.77"}, func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels = map[string]string{"app": "db"} }))
	w.pod(web, "ovn-control-plane", webV4, webV6)
	w.start()
	w.programmed(prod)
	w.programmed("outside")
	w.eventually("the refusals", func() bool { return w.is("refused", v1.ConditionConflict) })
	w.eventually("the event about it", func() bool { return len(w.events.Events) >= 5 })
	w.stop()
	w.writes()
	for _, known := range []place.Reach{place.Alive, place.Unknown} {
		for n := range w.health.States() {
			w.health.Set(n, known)
		}
		w.start()
		w.programmed(prod)
		w.stop()
		if got := w.writes(); len(got) > 0 {
			t.Errorf("nodes are %v: a restart wrote\n%s", known, strings.Join(got, "\n"))
		}
		if n := len(w.events.Events); n > 0 {
			t.Errorf("a restart told %s", <-w.events.Events)
		}
	}
}

// TestNodeDies: its address moves, with the reason in an Event, its status entry is removed with
// the items, and the policies get the other next hop at once.
func TestNodeDies(t *testing.T) {
	w := serving(t, "172.18.0.33")
	was := w.holder(prod, "172.18.0.33")
	w.writes()
	w.freeze(was, true)
	w.barrier.stop("chassis-"+was, true) // it does not confirm anything any more
	w.health.Set(was, place.Dead)
	w.eventually("the next hop", func() bool { return w.hops(web, webV4) == hopOf[other(was)] })
	w.programmed(prod)
	w.eventually("the old translation to go", func() bool { return w.nats(web) == other(was)+":172.18.0.33" })
	w.event("172.18.0.33 moves from node " + was + " to node " + other(was) + ": " + was + " unreachable")
	for _, nodeStatus := range w.get(prod).Status.Programmed {
		if nodeStatus.Node == was {
			t.Errorf("the word of the dead node is still there: %+v", nodeStatus)
		}
	}
	moved := false
	for _, patch := range w.writes() {
		if strings.Contains(patch, `"items":[`) { // a patch of only the items
			t.Errorf("the items changed before the word went: %s", patch)
		}
		moved = moved || strings.Contains(patch, `"/status/items"`) && strings.Contains(patch, `"remove"`)
	}
	if !moved {
		t.Error("no patch changed items and word")
	}
}

// TestOneOfTwoDies: the other next hop serves at once, however long the new one takes.
func TestOneOfTwoDies(t *testing.T) {
	w := serving(t, prodIPs...)
	dies := w.holder(prod, "172.18.0.33")
	w.barrier.stop("all", true)
	w.freeze(dies, true)
	w.health.Set(dies, place.Dead)
	w.eventually("the next hop that is left", func() bool { return w.hops(web, webV4) == hopOf[other(dies)] })
	w.eventually("the rest to wait", func() bool { return w.reason(prod, v1.ConditionAssigned) == string(egressip.NoNode) })
	w.event("no node can hold 172.18.0.33: ovn-control-plane: is not labelled")
	w.barrier.stop("all", false)
	w.freeze(dies, false)
	w.health.Set(dies, place.Alive)
	w.eventually("both", func() bool { return w.hops(web, webV4) == "100.64.0.3 100.64.0.4" })
}

// TestPlannedMove: the previous node continues to answer for the address, and the next hop stays,
// until the chassis of the new node has the translation; the previous translation stays until
// the policy is in force.
func TestPlannedMove(t *testing.T) {
	w := serving(t, "172.18.0.33")
	was := w.holder(prod, "172.18.0.33")
	to := other(was)
	const onBoth = "ovn-worker2:172.18.0.33 ovn-worker:172.18.0.33"
	w.barrier.stop("chassis-"+to, true)
	w.changeNode(was, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
	w.eventually("the translations on both", func() bool {
		return w.nats(web) == onBoth
	})
	addr := addrs("172.18.0.33")[0]
	w.eventually("the new node to be prepared", func() bool { return egressip.Awaits(w.get(prod).Status, to, addr) })
	w.eventually("the status to say so", func() bool { return w.reason(prod, v1.ConditionProgrammed) == egressip.ReasonWaitingForNode })
	if got := w.hops(web, webV4); got != hopOf[was] {
		t.Fatalf("led to %s before anybody is ready", got)
	}
	if e := w.get(prod); !egressip.Answers(e.Status, was, addr) || e.Status.Items[0].From != was {
		t.Fatalf("%s has let go of it before the translation is in force: %+v", was, e.Status)
	}
	w.barrier.stop("chassis-ovn-control-plane", true)
	w.barrier.stop("chassis-"+to, false)
	w.eventually("the next hop", func() bool { return w.hops(web, webV4) == hopOf[to] })
	if got := w.nats(web); got != onBoth {
		t.Fatalf("translations %s before the policy is in force", got)
	}
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.eventually("the old translation to go", func() bool { return w.nats(web) == to+":172.18.0.33" })
	w.programmed(prod)
	w.event("172.18.0.33 moves from node " + was + " to node " + to + ": " + was + " is not labelled")
}

// timed is a database that records when rows change.
type timed struct {
	database
	mu   sync.Mutex
	led  time.Time // the last change of a policy
	gone time.Time // the removal of a translation
}

func (d *timed) ApplyAll(ctx context.Context, want map[nb.Owner][]nb.Row) (nb.Stats, map[nb.Owner]error) {
	began := time.Now()
	stats, errs := d.database.ApplyAll(ctx, want)
	d.mu.Lock()
	defer d.mu.Unlock()
	if stats.Deleted > 0 {
		d.gone = began
	}
	if stats.Updated > 0 {
		d.led = time.Now()
	}
	return stats, errs
}

// TestDatapathRemembers: a chassis that has confirmed a policy may still send packets the
// previous way, by datapath flows that are not revalidated yet. The translation must still exist
// for these packets.
func TestDatapathRemembers(t *testing.T) {
	const goneThrough = 500 * time.Millisecond // the default of Open vSwitch's max-revalidator
	w := serving(t, "172.18.0.33")
	w.stop()
	db := &timed{database: w.db}
	w.db = db
	w.start()
	was := w.holder(prod, "172.18.0.33")
	w.changeNode(was, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
	w.eventually("the old translation to go", func() bool { return w.nats(web) == other(was)+":172.18.0.33" })
	w.programmed(prod)
	db.mu.Lock()
	defer db.mu.Unlock()
	if after := db.gone.Sub(db.led); after < 2*goneThrough {
		t.Errorf("the translation went %v after the policy led elsewhere", after)
	}
}

// TestSelection: pods are selected and deselected by their labels, the labels of their namespaces and
// changes of the EgressIP.
func TestSelection(t *testing.T) {
	w := serving(t, "172.18.0.33")
	led := func(key, addr string, is bool) {
		t.Helper()
		w.eventually("another policy of "+key, func() bool { return (w.hops(key, addr) == hopOf[w.holder(prod, "172.18.0.33")]) == is })
		w.eventually("its address to be told", func() bool {
			all, _ := w.pods.Addrs()
			return slices.Contains(all, addrs(addr)[0]) == is
		})
	}
	w.changePod(web, func(p *corev1.Pod) { p.Labels["app"] = "db" })
	led(web, webV4, false)
	w.eventually("its translations to go", func() bool { return w.nats(web) == "" })
	w.changePod(web, func(p *corev1.Pod) { p.Labels["app"] = "web" })
	led(web, webV4, true)

	w.pod("dev/web", "ovn-worker", "10.244.1.3")
	dev, err := w.kube.CoreV1().Namespaces().Get(context.Background(), "dev", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dev.Labels = map[string]string{"environment": "production"}
	w.update(dev)
	led("dev/web", "10.244.1.3", true)

	w.changePod(web, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	w.detach(web)
	led(web, webV4, false)
	w.changeEgressIP(prod, func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels = map[string]string{"app": "none"} })
	led("dev/web", "10.244.1.3", false)
	w.changeEgressIP(prod, func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels = map[string]string{"app": "web"} })
	led("dev/web", "10.244.1.3", true)
	w.remove(w.get(prod))
	w.eventually("everything to go", func() bool { return w.nb.DumpFeature(egressip.Feature) == "" })
}

// TestDeselected: a running pod's translations stay until its chassis has applied
// that no policy leads to them any more.
func TestDeselected(t *testing.T) {
	w := serving(t, "172.18.0.33")
	w.barrier.stop("chassis-ovn-control-plane", true)
	w.changePod(web, func(p *corev1.Pod) { p.Labels["app"] = "db" })
	w.eventually("the policy to go", func() bool { return w.hops(web, webV4) == "none" })
	if got := w.nats(web); got == "" {
		t.Error("the translation went with the policy")
	}
	w.barrier.stop("chassis-ovn-control-plane", false)
	w.eventually("the translation to go", func() bool { return w.nats(web) == "" })
	w.forgotten()
}

// TestGonePod: the rows of a deleted pod stay until its chassis has processed the removal of
// its port: until then it may send.
func TestGonePod(t *testing.T) {
	for _, gone := range []string{"port first", "pod first"} {
		t.Run(gone, func(t *testing.T) {
			w := serving(t, "172.18.0.33")
			w.barrier.stop("chassis-ovn-control-plane", true)
			led := w.hops(web, webV4)
			if gone == "port first" {
				w.detach(web)
			}
			w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}})
			w.eventually("the EgressIP to have no pod", func() bool { return len(w.master.members.Selected(prod)) == 0 })
			if gone == "pod first" {
				w.detach(web)
			}
			w.asked()
			if got := w.hops(web, webV4); got != led || w.nats(web) == "" {
				t.Errorf("led to %s, translations %q", got, w.nats(web))
			}
			w.barrier.stop("chassis-ovn-control-plane", false)
			w.eventually("the rows to go", func() bool { return w.nb.DumpFeature(egressip.Feature) == "" })
			if all, _ := w.pods.Addrs(); len(all) > 0 {
				t.Errorf("still told: %v", all)
			}
		})
	}
}

// TestGoneWithItsNode: the rows of a deleted pod stay for a while if its node
// is considered dead, since the pod may still send, and are then removed although the node cannot confirm.
func TestGoneWithItsNode(t *testing.T) {
	w := serving(t, "172.18.0.33")
	led := w.hops(web, webV4)
	w.barrier.stop("chassis-ovn-control-plane", true)
	w.health.Set("ovn-control-plane", place.Dead)
	w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}})
	w.eventually("the EgressIP to have no pod", func() bool { return len(w.master.members.Selected(prod)) == 0 })
	w.detach(web)
	w.eventually("the chassis to be asked", func() bool {
		w.master.podStates.mu.Lock()
		defer w.master.podStates.mu.Unlock()
		return w.master.podStates.byKey[web] != nil && len(w.master.podStates.byKey[web].waits) == 1
	})
	if got := w.hops(web, webV4); got != led || w.nats(web) == "" {
		t.Errorf("led to %s, translations %q", got, w.nats(web))
	}
	w.eventually("the rows to go", func() bool { return w.nb.DumpFeature(egressip.Feature) == "" })
}

// TestHostNetwork: a pod on its host's network is ignored.
func TestHostNetwork(t *testing.T) {
	w := newWorld(t, egress(prod, prodIPs))
	w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "host", UID: "h", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "ovn-worker", HostNetwork: true}})
	w.start()
	w.programmed(prod)
	if got := w.nb.DumpFeature(egressip.Feature); got != "" {
		t.Errorf("rows:\n%s", got)
	}
}

// TestSecondary: the management port is the next hop, once the node has the pods' rules.
func TestSecondary(t *testing.T) {
	w := newWorld(t, egress(prod, []v1.Address{"172.19.0.33"}))
	w.pod(web, "ovn-control-plane", webV4)
	w.start()
	on := w.programmed(prod)
	want := map[string]string{"ovn-worker": "10.244.1.2", "ovn-worker2": "10.244.2.2"}
	if got := w.hops(web, webV4); got != want[on] || w.nats(web) != "" {
		t.Errorf("led to %s, translations %q", got, w.nats(web))
	}
	w.freeze(on, true)
	w.pod("prod/late", "ovn-control-plane", "10.244.0.9")
	w.eventually("the status to tell that it waits", func() bool { return w.reason(prod, v1.ConditionProgrammed) == egressip.ReasonWaitingForPolicies })
	if got := w.hops("prod/late", "10.244.0.9"); got != "none" {
		t.Errorf("led to %s before the node has its rules", got)
	}
	if got := w.hops(web, webV4); got != want[on] {
		t.Errorf("who was served is led to %s", got)
	}
	w.freeze(on, false)
	w.eventually("the late pod", func() bool { return w.hops("prod/late", "10.244.0.9") == want[on] })
	w.changeNode(on, func(n *corev1.Node) { // the link goes down
		n.Annotations[kube.AnnotationHostAddresses] = kube.FormatHostAddresses(prefixes("172.18.0.3/16"))
	})
	w.eventually("the other link", func() bool { return w.hops(web, webV4) == want[other(on)] })
	w.event("172.19.0.33 moves from node " + on + " to node " + other(on) + ": " + on + " has no network with this address")
}

// TestConflict: the older EgressIP has the pod, and the younger one reports the conflict.
func TestConflict(t *testing.T) {
	w := serving(t, "172.18.0.33")
	w.create(egress("younger", []v1.Address{"172.18.0.55"}, func(e *v1.EgressIP) { e.CreationTimestamp = metav1.Time{Time: born.Add(1)} }))
	w.eventually("the conflict", func() bool { return w.is("younger", v1.ConditionConflict) })
	w.event("older EgressIPs have some of its pods: " + prod)
	if got := w.nats(web); !strings.HasSuffix(got, ":172.18.0.33") {
		t.Errorf("translations %s", got)
	}
	w.remove(w.get(prod))
	w.eventually("the younger to have it", func() bool {
		return strings.HasSuffix(w.nats(web), ":172.18.0.55") && !w.is("younger", v1.ConditionConflict)
	})
	w.eventually("its next hop", func() bool { return w.hops(web, webV4) == hopOf[w.holder("younger", "172.18.0.55")] })
}

// TestUnavailable: the behaviour if no node can hold an address.
func TestUnavailable(t *testing.T) {
	for _, c := range []struct {
		policy v1.UnavailablePolicy
		want   string
		told   []netip.Addr
	}{{"", "none", nil}, {v1.UnavailableNodeIP, "none", nil}, {v1.UnavailableDrop, "drop", addrs(webV4)}} {
		t.Run(string(c.policy), func(t *testing.T) {
			w := newWorld(t, egress(prod, prodIPs, func(e *v1.EgressIP) { e.Spec.OnUnavailable = c.policy }))
			w.pod(web, "ovn-control-plane", webV4, webV6)
			w.start()
			w.programmed(prod)
			w.barrier.stop("chassis-ovn-control-plane", true)
			for n := range hopOf {
				w.changeNode(n, func(n *corev1.Node) { delete(n.Labels, kube.LabelEgressAssignable) })
			}
			w.stillTold(c.want)
			w.barrier.stop("chassis-ovn-control-plane", false)
			w.eventually("nobody to hold it", func() bool { return w.reason(prod, v1.ConditionAssigned) == string(egressip.NoNode) })
			w.eventually("the policy to be "+c.want, func() bool { return w.hops(web, webV4) == c.want && w.nats(web) == "" })
			if got := w.hops(web, webV6); got != "none" {
				t.Errorf("IPv6: %s", got)
			}
			w.eventually("only addresses with a policy to be told", func() bool {
				got, _ := w.pods.Addrs()
				return slices.Equal(got, c.told)
			})
		})
	}
}

// TestAssumeReachable: without probes, a node that is not ready is considered dead.
func TestAssumeReachable(t *testing.T) {
	w := newWorld(t, egress(prod, []v1.Address{"172.18.0.33"}))
	w.assume = true
	w.pod(web, "ovn-control-plane", webV4)
	w.start()
	was := w.programmed(prod)
	w.freeze(was, true)
	w.changeNode(was, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	w.eventually("the next hop", func() bool { return w.hops(web, webV4) == hopOf[other(was)] })
}

// TestDeletedNode: the status entry of a deleted node is not waited for.
func TestDeletedNode(t *testing.T) {
	w := serving(t, "172.18.0.33")
	was := w.holder(prod, "172.18.0.33")
	w.remove(node(was, 0))
	w.eventually("the next hop", func() bool { return w.hops(web, webV4) == hopOf[other(was)] })
}

// TestDrift: changes by others are reverted.
func TestDrift(t *testing.T) {
	w := serving(t, "172.18.0.33")
	if !w.nb.Remove(egressip.Owner(web), "Logical_Router_Policy", webV4) {
		t.Fatal("no policy to remove")
	}
	w.eventually("the policy to be back", func() bool { return w.hops(web, webV4) == hopOf[w.holder(prod, "172.18.0.33")] })
	w.writes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		e := w.get(prod)
		e.Status.Items = nil
		_, err := w.egress.EgressIPV1().EgressIPs().UpdateStatus(context.Background(), e, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.programmed(prod)
	w.eventually("the items to be back", func() bool { return w.holder(prod, "172.18.0.33") != "" })
}

// TestServiceAddress: an outside address of a Service is not an egress address,
// unless it was held before; the Service cannot take it then.
func TestServiceAddress(t *testing.T) {
	w := newWorld(t, egress(prod, []v1.Address{"172.18.0.33"}))
	w.create(loadBalancer("taken", "172.18.0.33"))
	w.start()
	refused := func() bool {
		c := meta.FindStatusCondition(w.get(prod).Status.Conditions, v1.ConditionAssigned)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == string(egressip.AddressTaken)
	}
	w.eventually("the refusal", refused)
	w.event("172.18.0.33 is an address of Service dev/taken")
	if items := w.get(prod).Status.Items; len(items) != 0 {
		t.Errorf("items %v", items)
	}
	w.remove(loadBalancer("taken", ""))
	w.programmed(prod)
	for name, change := range map[string]func(*corev1.Service){
		"late": func(*corev1.Service) {},
		"external": func(s *corev1.Service) {
			s.Spec.Type, s.Status.LoadBalancer.Ingress, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, nil, []string{"172.18.0.33"}
		},
	} {
		svc := loadBalancer(name, "172.18.0.33")
		change(svc)
		w.create(svc)
		w.eventually("the conflict", func() bool { return w.is(prod, v1.ConditionConflict) })
		if w.holder(prod, "172.18.0.33") == "" || !w.is(prod, v1.ConditionAssigned) {
			t.Errorf("%s: the address is held by nobody any more", name)
		}
		w.event("172.18.0.33 is an address of Service dev/" + name)
		w.remove(svc)
		w.eventually("the conflict to end", func() bool { return !w.is(prod, v1.ConditionConflict) })
	}
}

func loadBalancer(name, addr string) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr}}
	return svc
}
