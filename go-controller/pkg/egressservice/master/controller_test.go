package master

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// bubble runs a subtest with its own fake clock.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// other returns the worker other than host.
func other(host string) string {
	if host == "ovn-worker" {
		return "ovn-worker2"
	}
	return "ovn-worker"
}

// checkWrites waits until the system is idle and compares the writes since the last forgetWrites
// with want. Only the first entry of want has a fixed position: the consequences of a
// status follow it in any order.
func (w *world) checkWrites(want ...string) {
	w.t.Helper()
	fakeapi.Settle()
	got := w.writes()
	// Labels are written independently.
	for _, labels := range []bool{true, false} {
		of := func(all []string) []string {
			return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasPrefix(s, "nodes/") != labels })
		}
		if d := cmp.Diff(of(want), of(got), cmpopts.EquateEmpty()); d != "" {
			w.t.Errorf("writes (-want +got):\n%s", d)
		}
	}
}

// hostPatch returns the status patch that names a host that is not ready yet.
func hostPatch(host string) string {
	return fmt.Sprintf(`egressservices/demo-svc {"metadata":{"uid":"uid-demo-svc"},"status":{"host":"%s","is":"WaitingForHost"}}`, host)
}

// readyPatch is the status patch that reports that the host is ready.
const readyPatch = `egressservices/demo-svc {"metadata":{"uid":"uid-demo-svc"},"status":{"is":"Programmed"}}`

func labelPatch(node, value string) string {
	return fmt.Sprintf(`nodes/%s {"metadata":{"labels":{"%s":%s},"uid":"%s"}}`, node, demoHost, value, node)
}

// TestWalkThrough creates, fails over and deletes an EgressService, and counts the writes: everything
// is written once, in an order in which nothing contradicts the status.
func TestWalkThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, service("demo-svc", demoIngress...), slice("demo-svc", demoPods...))
		w.start()
		if got := w.nb.DumpFeature(egressservice.Feature); got != "" {
			t.Errorf("rows before there is an EgressService:\n%s", got)
		}
		w.create(egress("demo-svc"))
		first := w.anyHost(demo)
		w.event("HostAssigned Node " + first)
		w.checkWrites(hostPatch(first), labelPatch(first, `""`), "policies of default/demo-svc +4 ~0 -0", readyPatch)

		w.forgetWrites()
		second := other(first)
		w.health.Set(first, place.Dead)
		w.served(demo, second)
		w.event(fmt.Sprintf("HostChanged Node %s serves the egress traffic instead of %s: unreachable", second, first))
		w.checkWrites(hostPatch(second), labelPatch(first, "null"), labelPatch(second, `""`),
			"policies of default/demo-svc +0 ~4 -0", readyPatch)

		w.forgetWrites()
		w.health.Set(first, place.Alive)
		w.checkWrites()
		w.served(demo, second)

		// A deleted object has no status that others could wait for.
		w.remove(egress("demo-svc"))
		w.served(demo, "")
		fakeapi.Settle()
		got, want := w.writes(), []string{labelPatch(second, "null"), "policies of default/demo-svc +0 ~0 -4"}
		if d := cmp.Diff(want, slices.Sorted(slices.Values(got))); d != "" {
			t.Errorf("writes (-want +got):\n%s", d)
		}
	})
}

func TestHostIsReplaced(t *testing.T) {
	for name, lose := range map[string]func(w *world, host string){
		"not ready": func(w *world, host string) {
			w.changeNode(host, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		},
		"unreachable": func(w *world, host string) { w.health.Set(host, place.Dead) },
		"relabelled": func(w *world, host string) {
			w.changeNode(host, func(n *corev1.Node) { delete(n.Labels, worker) })
		},
		"cordoned": func(w *world, host string) {
			w.changeNode(host, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		},
		"deleted": func(w *world, host string) {
			w.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}})
		},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, demoObjects()...)
			w.start()
			host := w.anyHost(demo)
			lose(w, host)
			w.served(demo, other(host))
			lose(w, other(host)) // no node is left
			if name == "cordoned" {
				fakeapi.Settle()
				w.served(demo, other(host)) // which is better than none
				return
			}
			w.served(demo, "")
			w.event("NoNode no node can be the host")
			w.health.Set(host, place.Alive)
			switch name {
			case "unreachable": // recovers by itself
				w.served(demo, host)
			case "deleted":
				w.create(node(host, map[string]int{"ovn-worker": 0, "ovn-worker2": 1}[host]))
				w.served(demo, host)
			}
		})
	}
}

// TestBackToTheStart: whatever ends the service leaves nothing behind, and the service returns
// when the reason disappears.
func TestBackToTheStart(t *testing.T) {
	noType := service("demo-svc", demoIngress...)
	noType.Spec.Type = corev1.ServiceTypeClusterIP
	network := egress("demo-svc", func(e *v1.EgressService) { e.Spec.Network = "b lue" })
	for name, c := range map[string]struct {
		lose, restore func(w *world)
		event         string
	}{
		"service deleted": {func(w *world) { w.remove(service("demo-svc")) },
			func(w *world) { w.create(service("demo-svc", demoIngress...)) }, "ServiceNotFound"},
		"type changed": {func(w *world) { w.update(noType) },
			func(w *world) { w.update(service("demo-svc", demoIngress...)) }, "ServiceNotLoadBalancer"},
		"ingress lost": {func(w *world) { w.update(service("demo-svc")) },
			func(w *world) { w.update(service("demo-svc", demoIngress...)) }, "NoIngressIP"},
		"no network": {func(w *world) { w.update(network) },
			func(w *world) { w.update(egress("demo-svc")) }, `InvalidNetwork network "b lue"`},
		"deleted": {func(w *world) { w.remove(egress("demo-svc")) }, func(w *world) { w.create(egress("demo-svc")) }, ""},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, demoObjects()...)
			w.start()
			w.anyHost(demo)
			c.lose(w)
			w.served(demo, "")
			if c.event != "" {
				w.event(c.event)
			}
			w.eventually("no pods", func() bool { pods, _ := w.pods.Addrs(); return len(pods) == 0 })
			if got := w.nb.DumpFeature(egressservice.Feature); got != "" {
				t.Errorf("rows left:\n%s", got)
			}
			c.restore(w)
			w.anyHost(demo)
		})
	}
}

// TestEndpointsChange: one transaction for the difference, and no other writes.
func TestEndpointsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, demoObjects()...)
		w.start()
		w.anyHost(demo)
		next := slice("demo-svc", "10.244.0.5", "10.244.1.9", "172.18.0.3")
		w.makePods(next)
		fakeapi.Settle() // the pod is known before it is listed
		w.forgetWrites()
		w.update(next)
		w.eventually("the new endpoint", func() bool { return strings.Contains(w.nb.Dump(), "10.244.1.9") })
		// Removed endpoints are removed at once; new ones are held until the host, which may be faster, is ready.
		fakeapi.Settle()
		if len(w.writes()) == 1 {
			w.checkWrites("policies of default/demo-svc +1 ~0 -3")
		} else {
			w.checkWrites("policies of default/demo-svc +1 ~0 -3", "policies of default/demo-svc +0 ~1 -0")
		}
		pods, _ := w.pods.Addrs()
		var text []string
		for _, p := range pods {
			text = append(text, p.String())
		}
		for _, want := range []string{"10.244.0.5", "10.244.1.9"} {
			if !slices.Contains(text, want) {
				t.Errorf("pods %v lack %s", text, want)
			}
		}
	})
}

// TestRestartWritesNothing: a restart writes nothing, even though reachability is still unknown and
// another node would be the first choice.
func TestRestartWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, demoObjects()...)
		for i := range 20 {
			name := fmt.Sprintf("svc-%d", i)
			w.create(egress(name))
			w.create(service(name, fmt.Sprintf("5.5.6.%d", i), fmt.Sprintf("5555::%d", i)))
			w.create(slice(name, fmt.Sprintf("10.244.0.%d", 10+i), fmt.Sprintf("fd00:10:244:1::%d", 10+i)))
		}
		w.start()
		w.anyHost(demo)
		for i := range 20 {
			w.anyHost(fmt.Sprintf("default/svc-%d", i))
		}
		w.stop()
		w.forgetWrites()
		before := w.nb.Dump()
		for name := range w.health.States() {
			w.health.Set(name, place.Unknown)
		}
		w.start()
		if got := w.writes(); len(got) > 0 {
			t.Errorf("a restart with nothing changed wrote:\n%s", strings.Join(got, "\n"))
		}
		for name := range hopsOf {
			if name != "" {
				w.health.Set(name, place.Alive)
			}
		}
		w.checkWrites()
		w.eventually("the pods to be told", func() bool { pods, complete := w.pods.Addrs(); return complete && len(pods) >= 44 })
		w.stop()

		// Changes made while no master runs are applied afterwards.
		w.remove(egress("svc-7"))
		w.update(slice("demo-svc", "10.244.0.5"))
		w.start()
		if strings.Contains(w.nb.Dump(), "svc-7") {
			t.Error("rows of an EgressService that is gone")
		}
		if got := w.nb.Dump(); strings.Count(got, "default/demo-svc ") != 1 || before == got {
			t.Errorf("endpoints that are gone:\n%s", got)
		}
		w.served("default/svc-7", "")
	})
}

// TestLabelIsNeverOnTwoNodes: while a label cannot be removed from the old node, no
// other node gets it.
func TestLabelIsNeverOnTwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, demoObjects()...)
		w.start()
		host := w.anyHost(demo)
		refuse := make(chan bool, 1)
		refuse <- true
		asked := make(chan struct{}, 1000)
		w.kube.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			no := <-refuse
			refuse <- no
			if no && a.(clienttesting.PatchAction).GetName() == host {
				asked <- struct{}{}
				return true, nil, errors.New("the API server is in a bad mood")
			}
			return false, nil, nil
		})
		w.health.Set(host, place.Dead)
		for range 3 {
			<-asked
		}
		if _, _, labels := w.hosts(demo); labels != host {
			t.Errorf("labels on %q while that of %q cannot be removed", labels, host)
		}
		<-refuse
		refuse <- false
		w.served(demo, other(host))
	})
}

// TestForeignHands: a status or a label written by somebody else is corrected.
func TestForeignHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, demoObjects()...)
		w.start()
		host := w.anyHost(demo)
		w.update(egress("demo-svc", func(e *v1.EgressService) {
			e.Status.Host = "ovn-control-plane"
		}))
		w.served(demo, host)
		w.changeNode("ovn-control-plane", func(n *corev1.Node) {
			n.Labels[demoHost] = ""
			n.Labels[kube.LabelEgressServicePrefix+"made-up"] = "x"
		})
		w.served(demo, host)
		w.eventually("a made-up label to go", func() bool {
			n, err := w.kube.CoreV1().Nodes().Get(t.Context(), "ovn-control-plane", metav1.GetOptions{})
			return err == nil && n.Labels[kube.LabelEgressServicePrefix+"made-up"] == "" && len(n.Labels) == 0
		})
		if !w.nb.Remove(egressservice.Owner(demo), nbdb.LogicalRouterPolicyTable, "10.244.0.5") {
			t.Fatal("no row to remove")
		}
		w.eventually("the policy to come back", func() bool { return strings.Contains(w.nb.Dump(), `"ip4.src == 10.244.0.5"`) })
	})
}

// TestConditionsAreOfTheSpecTheyName: while placement has not seen a spec, nothing is
// reported about it.
func TestConditionsAreOfTheSpecTheyName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, append(demoObjects(), service("other", "5.5.5.6", "5555::6"),
			slice("other", "10.244.0.9", "fd00:10:244:1::9"), egress("other"))...)
		w.start()
		w.anyHost(demo)
		w.anyHost("default/other")
		fakeapi.Settle()

		unblock := w.health.Block()
		have, err := w.egress.EgressServiceV1().EgressServices("default").Get(t.Context(), "demo-svc", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.update(egress("demo-svc", func(e *v1.EgressService) {
			e.Generation, e.Status = 2, have.Status
			e.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-it"}}
		}))
		// Others are served meanwhile.
		w.update(slice("other", "10.244.0.9", "fd00:10:244:1::9", "10.244.0.10"))
		w.eventually("the other's endpoint", func() bool { return strings.Contains(w.nb.Dump(), `"ip4.src == 10.244.0.10"`) })
		unblock()
		w.served(demo, "")
		for _, a := range w.egress.Actions() {
			p, ok := a.(clienttesting.PatchAction)
			if !ok || p.GetName() != "demo-svc" {
				continue
			}
			var patch struct{ Status v1.EgressServiceStatus }
			if err := json.Unmarshal(p.GetPatch(), &patch); err != nil {
				continue // written by a node
			}
			c := meta.FindStatusCondition(patch.Status.Conditions, v1.ConditionAssigned)
			if c != nil && c.ObservedGeneration == 2 && c.Status == metav1.ConditionTrue {
				t.Errorf("said of the new spec: %+v", *c)
			}
		}
	})
}

func TestDatabaseAndAPIErrorsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, demoObjects()...)
		fail := 3
		w.nb.FailWith(func(nb.Owner) error {
			if fail--; fail > 0 {
				return errors.New("no leader")
			}
			return nil
		})
		failures := make(chan struct{}, 2)
		failures <- struct{}{}
		failures <- struct{}{}
		w.egress.PrependReactor("patch", "egressservices", func(clienttesting.Action) (bool, runtime.Object, error) {
			select {
			case <-failures:
				return true, nil, errors.New("try later")
			default:
				return false, nil, nil
			}
		})
		w.start()
		w.anyHost(demo)
	})
}

func TestLocalTrafficPolicyFollowsEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := service("demo-svc", demoIngress...)
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		on := func(host string) *discoveryv1.EndpointSlice {
			s := slice("demo-svc", demoPods...)
			for i := range s.Endpoints {
				s.Endpoints[i].NodeName = &host
			}
			return s
		}
		w := newWorld(t, egress("demo-svc"), svc, on("ovn-worker"))
		w.start()
		w.served(demo, "ovn-worker")
		w.update(on("ovn-worker2"))
		w.served(demo, "ovn-worker2")
		w.update(on("ovn-control-plane"))
		w.served(demo, "")
		w.event("has no endpoint, which externalTrafficPolicy Local demands")
	})
}

// A changed selector moves the service, or keeps it.
func TestSelectorChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, demoObjects()...)
		w.start()
		host := w.anyHost(demo)
		w.forgetWrites()
		change := func(f func(*v1.EgressService)) {
			eg, err := w.egress.EgressServiceV1().EgressServices("default").Get(t.Context(), "demo-svc", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f(eg)
			w.update(eg)
		}
		change(func(e *v1.EgressService) { e.Spec.NodeSelector = metav1.LabelSelector{} })
		w.checkWrites()
		w.served(demo, host)
		change(func(e *v1.EgressService) {
			e.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: worker, Operator: metav1.LabelSelectorOpDoesNotExist}}
		})
		w.served(demo, "ovn-control-plane")
	})
}

// TestPoliciesWaitForTheHost: no new traffic is steered to a host that has not
// acknowledged; steered traffic stays where it is until then, and removed endpoints are removed.
func TestPoliciesWaitForTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		w := newWorld(t, demoObjects()...)
		w.silent = func(string, string) bool { return quiet.Load() }
		w.start()
		first := w.anyHost(demo)
		quiet.Store(true)
		w.forgetWrites()
		w.update(slice("demo-svc", "10.244.0.5", "10.244.1.9"))
		w.eventually("the endpoints that went to go", func() bool { return strings.Count(w.nb.Dump(), "reroute") == 1 })
		w.eventually("the condition to say that the host is behind", func() bool {
			return slices.Contains(w.writes(), strings.Replace(readyPatch, "Programmed", "WaitingForHost", 1))
		})
		if d := w.nb.Dump(); strings.Count(d, "reroute") != 1 || strings.Count(d, `action=drop external_ids={EgressSVC=default/demo-svc} match="ip4.src == 10.244.1.9"`) != 1 {
			t.Errorf("an endpoint is not held until its translation is there:\n%s", d)
		}
		// The host dies and the next one does not acknowledge: the policies stay as they are.
		w.health.Set(first, place.Dead)
		w.eventually("the status to name the next host", func() bool { status, _, _ := w.hosts(demo); return status == other(first) })
		if _, policies, _ := w.hosts(demo); strings.TrimSpace(policies) != strings.Fields(hopsOf[first])[0] {
			t.Errorf("policies lead to %q, want them at %s still", policies, first)
		}
		// A restart in between changes nothing.
		w.stop()
		w.start()
		if _, policies, _ := w.hosts(demo); strings.TrimSpace(policies) != strings.Fields(hopsOf[first])[0] {
			t.Errorf("after a restart policies lead to %q", policies)
		}
		quiet.Store(false)
		w.update(slice("demo-svc", "10.244.0.5", "10.244.1.9", "fd00:10:244:1::5"))
		w.served(demo, other(first))
	})
}

// TestHeldTraffic: with onUnavailable Drop there is a policy at all times.
func TestHeldTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		w := newWorld(t, egress("demo-svc", func(e *v1.EgressService) { e.Spec.OnUnavailable = v1.UnavailableDrop }),
			service("demo-svc", demoIngress...), slice("demo-svc", demoPods...))
		w.silent = func(key, _ string) bool { return key == demo && quiet.Load() }
		w.start()
		count := func(action string) func() bool {
			return func() bool { return strings.Count(w.nb.Dump(), "action="+action) == 4 }
		}
		w.eventually("traffic to be held while the host is not ready", count("drop"))
		quiet.Store(false)
		w.update(slice("demo-svc", append(slices.Clone(demoPods), "172.18.0.9")...))
		w.eventually("traffic to be steered", count("reroute"))
		w.health.Set("ovn-worker", place.Dead)
		w.health.Set("ovn-worker2", place.Dead)
		w.eventually("traffic to be held without a node", count("drop"))
		w.health.Set("ovn-worker", place.Alive)
		w.served(demo, "ovn-worker")
	})
}

// TestPodsAreHeldUntilTheyAreEndpoints: pods that a Service selects do not leave with
// another address before they are listed, once the Service was served.
func TestPodsAreHeldUntilTheyAreEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := service("demo-svc", demoIngress...)
		svc.Spec.Selector = map[string]string{"app": "demo"}
		w := newWorld(t, egress("demo-svc"), svc, slice("demo-svc", demoPods...))
		var port atomic.Bool
		w.given = func(key string, uid types.UID) []netip.Addr {
			if key == "default/young" && uid == "uid-young" && port.Load() {
				return []netip.Addr{netip.MustParseAddr("10.244.0.77"), netip.MustParseAddr("fd00:10:244:1::77")}
			}
			return nil
		}
		w.start()
		w.anyHost(demo)
		held := func() int { return strings.Count(w.nb.Dump(), "action=drop") }
		young := pod("default", "10.244.0.77", "ovn-worker")
		young.Name, young.Status = "young", corev1.PodStatus{}
		young.Labels = map[string]string{"app": "demo", "pod-template-hash": "x"}
		young.UID = "uid-young"
		// The annotation exists before there is a port; it may contain anything.
		young.Annotations = map[string]string{kube.AnnotationPodNetworks: kube.FormatPodNetwork(topology.PodNetwork{
			MAC: "0a:58:0a:f4:00:42", Addrs: []netip.Prefix{netip.MustParsePrefix("10.244.0.66/24"), netip.MustParsePrefix("fd00:10:244:1::66/64")}})}
		w.create(young)
		other := pod("default", "10.244.0.78", "ovn-worker")
		other.Labels = map[string]string{"app": "other"}
		w.create(other)
		fakeapi.Settle()
		if held() != 0 {
			t.Errorf("held before an address was given:\n%s", w.nb.Dump())
		}
		port.Store(true)
		w.master.Look("default/young")
		w.eventually("the pod to be held in both families", func() bool { return held() == 2 && strings.Contains(w.nb.Dump(), "10.244.0.77") })
		if pods, _ := w.pods.Addrs(); !slices.Contains(pods, netip.MustParseAddr("10.244.0.77")) {
			t.Errorf("a held pod cannot reach nodes: %v", pods)
		}
		listed := slice("demo-svc", append(slices.Clone(demoPods), "10.244.0.77", "fd00:10:244:1::77")...)
		young.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.244.0.77"}, {IP: "fd00:10:244:1::77"}}}
		w.update(young)
		w.update(listed)
		w.eventually("the endpoint to be steered", func() bool { return held() == 0 && strings.Count(w.nb.Dump(), "demo-svc 10.244.0.77]") == 1 })
		// The pod loses the label, and the slice follows a little later.
		young.Labels = nil
		w.update(young)
		w.update(slice("demo-svc", demoPods...))
		w.eventually("the pod to be left alone", func() bool { return !strings.Contains(w.nb.Dump(), "10.244.0.77") })
	})
}

// TestOthersPodsAreLeftAlone: a slice that lists the pod of another namespace
// changes nothing for that pod.
func TestOthersPodsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, egress("demo-svc"), service("demo-svc", demoIngress...), pod("victims", "10.244.0.66", "ovn-worker"))
		w.start()
		forged := slice("demo-svc", "10.244.0.5", "10.244.0.66")
		forged.Endpoints[1].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "victims", Name: "pod-10-244-0-66"}
		w.create(pod("default", "10.244.0.5", "ovn-worker"))
		if _, err := w.kube.DiscoveryV1().EndpointSlices("default").Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually("the own pod to be served", func() bool { return w.programmed(demo) && strings.Count(w.nb.Dump(), "reroute") == 1 })
		fakeapi.Settle()
		if d := w.nb.Dump(); strings.Contains(d, "10.244.0.66") {
			t.Errorf("the pod of another namespace has a policy:\n%s", d)
		}
	})
}
