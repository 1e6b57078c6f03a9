package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// history is a random sequence of actions of users, kubelets and the network.
type history struct {
	*world
	rng    *rand.Rand
	events []string
}

func (h *history) pick(from ...string) string { return from[h.rng.IntN(len(from))] }

func (h *history) some(p float64) bool { return h.rng.Float64() < p }

// put creates or replaces an object; its status and the labels
// of controllers stay.
func (h *history) put(obj runtime.Object) {
	ctx := context.Background()
	switch o := obj.(type) {
	case *corev1.Node:
		if have, err := h.kube.CoreV1().Nodes().Get(ctx, o.Name, metav1.GetOptions{}); err == nil {
			for k, v := range have.Labels {
				if strings.HasPrefix(k, kube.LabelEgressServicePrefix) {
					o.Labels[k] = v
				}
			}
			h.update(o)
			return
		}
	case *corev1.Service:
		if _, err := h.kube.CoreV1().Services(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{}); err == nil {
			h.update(o)
			return
		}
	case *discoveryv1.EndpointSlice:
		if _, err := h.kube.DiscoveryV1().EndpointSlices(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{}); err == nil {
			h.update(o)
			return
		}
	case *v1.EgressService:
		if have, err := h.egress.EgressServiceV1().EgressServices(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{}); err == nil {
			o.Status, o.Generation = have.Status, have.Generation+1
			h.update(o)
			return
		}
	}
	h.create(obj)
}

// gone deletes an object if it exists.
func (h *history) gone(obj runtime.Object) {
	ctx := context.Background()
	var err error
	switch o := obj.(type) {
	case *corev1.Node:
		err = h.kube.CoreV1().Nodes().Delete(ctx, o.Name, metav1.DeleteOptions{})
	case *corev1.Service:
		err = h.kube.CoreV1().Services(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
	case *discoveryv1.EndpointSlice:
		err = h.kube.DiscoveryV1().EndpointSlices(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
	case *corev1.Pod:
		err = h.kube.CoreV1().Pods(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
	case *v1.EgressService:
		err = h.egress.EgressServiceV1().EgressServices(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
	}
	_ = err // it did not exist
}

func (h *history) addr() string {
	return h.pick("10.244.0.5", "10.244.0.6", "10.244.1.7", "fd00:10:244:1::5", "fd00:10:244:2::7")
}

// event performs one action.
func (h *history) event() {
	name := fmt.Sprintf("svc-%d", h.rng.IntN(4))
	i := h.rng.IntN(3)
	nodeName := []string{"ovn-worker", "ovn-worker2", "ovn-control-plane"}[i]
	say := func(format string, args ...any) { h.events = append(h.events, fmt.Sprintf(format, args...)) }
	switch h.rng.IntN(10) {
	case 0, 1:
		by, selector, unavailable := h.pick("", "", string(v1.SourceIPNetwork)), h.pick(worker, worker, "", "nobody"), h.some(0.3)
		say("egress %s by %q selector %q drop %v", name, by, selector, unavailable)
		h.put(egress(name, func(e *v1.EgressService) {
			e.CreationTimestamp = metav1.Unix(int64(len(name)+int(name[4])), 0)
			e.Spec.SourceIPBy = v1.SourceIPMode(by)
			if e.Spec.NodeSelector.MatchLabels = map[string]string{selector: ""}; selector == "" {
				e.Spec.NodeSelector.MatchLabels = nil
			}
			if unavailable {
				e.Spec.OnUnavailable = v1.UnavailableDrop
			}
		}))
	case 2:
		if h.some(0.5) {
			say("no egress %s", name)
			h.gone(egress(name))
		}
	case 3, 4:
		if h.some(0.2) {
			say("no service %s", name)
			h.gone(service(name))
			return
		}
		ingress := [][]string{demoIngress, demoIngress[:1], {"6.6.6.6"}, nil}[h.rng.IntN(4)]
		s := service(name, ingress...)
		if h.some(0.3) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		say("service %s %v %s", name, ingress, s.Spec.ExternalTrafficPolicy)
		h.put(s)
	case 5, 6:
		var pods []string
		for range h.rng.IntN(4) {
			pods = append(pods, h.addr())
		}
		slices.Sort(pods)
		pods = slices.Compact(pods)
		s := slice(name, pods...)
		on := h.pick("ovn-worker", "ovn-worker2")
		for i := range s.Endpoints {
			s.Endpoints[i].NodeName = &on
		}
		if h.some(0.1) {
			say("no slice %s", name)
			h.gone(s)
			return
		}
		say("slice %s %v on %s", name, pods, on)
		h.put(s)
	case 7:
		reach := []place.Reach{place.Alive, place.Alive, place.Dead, place.Unknown}[h.rng.IntN(4)]
		say("%s is %s", nodeName, reach)
		h.health.Set(nodeName, reach)
	case 8:
		if h.some(0.1) {
			say("no node %s", nodeName)
			h.gone(node(nodeName, i))
			return
		}
		n := node(nodeName, i)
		n.Spec.Unschedulable = h.some(0.2)
		if h.some(0.2) {
			n.Status.Conditions[0].Status = corev1.ConditionFalse
		}
		if h.some(0.2) {
			delete(n.Labels, worker)
		}
		say("node %s cordoned %v ready %s labels %v", nodeName, n.Spec.Unschedulable, n.Status.Conditions[0].Status, n.Labels)
		h.put(n)
	case 9:
		a := h.addr()
		say("no pod %s", a)
		h.gone(pod("default", a, ""))
	}
}

// trouble disturbs the master meanwhile.
func (h *history) trouble() {
	switch h.rng.IntN(12) {
	case 0:
		h.events = append(h.events, "watches are lost")
		h.faults.Cut()
		synctest.Wait()
	case 1:
		h.events = append(h.events, "restart")
		h.stop()
		h.start()
	case 2:
		h.events = append(h.events, "a moment")
		<-time.After(time.Duration(h.rng.IntN(2000)) * time.Millisecond)
	case 3, 4:
		synctest.Wait()
	}
}

// state returns the final state, as far as it does not depend on the history: the rows,
// and the master's part of each EgressService and node.
func (w *world) state() string {
	var out strings.Builder
	out.WriteString(w.nb.DumpFeature(egressservice.Feature))
	list, _ := w.egress.EgressServiceV1().EgressServices("").List(context.Background(), metav1.ListOptions{})
	for _, e := range list.Items {
		fmt.Fprintf(&out, "%s: host %q", e.Name, e.Status.Host)
		for _, c := range e.Status.Conditions {
			fmt.Fprintf(&out, " %s=%s/%s", c.Type, c.Status, c.Reason)
		}
		out.WriteString("\n")
	}
	nodes, _ := w.kube.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	for _, n := range nodes.Items {
		fmt.Fprintf(&out, "%s: %v\n", n.Name, slices.Sorted(maps.Keys(n.Labels)))
	}
	return out.String()
}

// same returns a world with the same objects and an empty database.
func (w *world) same(t *testing.T) *world {
	f := newWorld(t)
	ctx := context.Background()
	for name := range f.health.States() {
		f.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, state := range w.health.States() {
		f.health.Set(name, state)
	}
	pods, _ := w.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	for _, o := range pods.Items {
		f.create(&o)
	}
	nodes, _ := w.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	for _, o := range nodes.Items {
		f.create(&o)
	}
	services, _ := w.kube.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	for _, o := range services.Items {
		f.create(&o)
	}
	endpoints, _ := w.kube.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
	for _, o := range endpoints.Items {
		if err := f.kube.Tracker().Add(&o); err != nil {
			t.Fatal(err)
		}
	}
	list, _ := w.egress.EgressServiceV1().EgressServices("").List(ctx, metav1.ListOptions{})
	for _, o := range list.Items {
		f.create(&o)
	}
	return f
}

// TestRandomOrders: whatever happens in whatever order, with a failing API server and
// database, lost watches and restarts in between, the final state equals the one that a
// master starting with an empty database makes of the last objects, and a restarted
// master writes nothing.
func TestRandomOrders(t *testing.T) {
	seeds.Each(t, 8, func(t *testing.T, rng *rand.Rand) {
		synctest.Test(t, func(t *testing.T) {
			h := &history{world: newWorld(t), rng: rng}
			h.faults = fakeapi.NewFaults(rng)
			h.faults.Inject(h.kube)
			h.faults.Inject(h.egress)
			broken := rand.New(rand.NewPCG(rng.Uint64(), 0))
			h.start()
			share := []float64{0, 0.1, 0.3}[rng.IntN(3)]
			h.faults.Set(share)
			h.nb.FailWith(func(nb.Owner) error {
				if broken.Float64() < share {
					return errors.New("no leader")
				}
				return nil
			})
			for range 60 {
				h.faults.Do(h.event)
				h.trouble()
			}
			h.faults.Set(0)
			h.nb.FailWith(nil)
			for range 3 {
				fakeapi.Settle()
			}
			fail := func(format string, args ...any) {
				t.Errorf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(h.events, "\n"))
			}
			end := h.state()
			writes := h.nb.Writes()
			h.stop()
			h.forgetWrites()
			h.start()
			fakeapi.Settle()
			if got := h.writes(); len(got) > 0 || h.nb.Writes() != writes {
				fail("a restart wrote:\n%s\nat the end:\n%s\nafter it:\n%s", strings.Join(got, "\n"), end, h.state())
			}
			fresh := h.same(t)
			fresh.start()
			fakeapi.Settle()
			if got := fresh.state(); got != end {
				fail("the end:\n%s\nfrom scratch:\n%s", end, got)
			}
		})
	})
}

// TestLocalServiceLosesItsPod: an EgressService that requires nodes with endpoints has no host if an
// older one has its only pod, and gets one when the pod is its own again.
func TestLocalServiceLosesItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := service("young", demoIngress...)
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		on, at := "ovn-worker", func(year int) func(*v1.EgressService) {
			return func(e *v1.EgressService) { e.CreationTimestamp = metav1.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
		}
		listed := slice("young", "10.244.0.5")
		listed.Endpoints[0].NodeName = &on
		w := newWorld(t, egress("young", at(2021)), svc, listed, egress("z-old", at(2020)), service("z-old", "6.6.6.6"), slice("z-old", "10.244.0.6"))
		hosted := func(node string) {
			t.Helper()
			w.eventually("the host to be "+node, func() bool {
				status, policies, labels := w.hosts("default/young")
				return status == node && labels == node && (policies == "") == (node == "")
			})
		}
		w.start()
		hosted(on)
		w.update(slice("z-old", "10.244.0.5", "10.244.0.6"))
		hosted("")
		w.stop()
		w.forgetWrites()
		w.start()
		w.checkWrites()
		w.update(slice("z-old", "10.244.0.6"))
		hosted(on)
	})
}
