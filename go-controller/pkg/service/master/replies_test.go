package master_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// localService is a Service with externalTrafficPolicy Local and two endpoints.
func localService() state {
	return state{
		nodes:     map[string]topology.GatewayMode{"n1": topology.GatewayShared, "n2": topology.GatewayShared},
		services:  []*corev1.Service{object("b", externalLocal)},
		endpoints: map[string][]string{"b": {"10.244.1.4@n1", "10.244.2.4@n2"}},
	}
}

// podAt is a running pod with an address.
func podAt(namespace, name, addr string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: addr}}},
	}
}

// TestRepliesFollowPods: replies bypass the egress policies only for pods of the Service's
// own namespace, even if the pod becomes known after the slice.
func TestRepliesFollowPods(t *testing.T) {
	w := newWorld(t)
	w.conf.Egress = true
	led := noreroute.NewPodSet()
	w.egress = []*noreroute.PodSet{noreroute.NewPodSet(), led}
	w.set(localService())
	w.start()
	create := func(p *corev1.Pod) {
		t.Helper()
		if _, err := w.kube.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	passes := func(want string) {
		t.Helper()
		eventually.Succeeds(t, fmt.Sprintf("policies %q", want), func() error {
			var got []string
			for _, r := range w.nb.Rows(service.Owner("ns/b")) {
				if p, ok := r.Model.(*nbdb.LogicalRouterPolicy); ok && p.Priority == topology.PriorityServicePort {
					got = append(got, p.Match)
				}
			}
			if strings.Join(got, " ") != want {
				return fmt.Errorf("they are %q", got)
			}
			return nil
		})
	}
	const own = "ip4.src == {10.244.1.4} && tcp.src == 8080"
	passes("")
	create(podAt("others", "victim", "10.244.2.4"))
	create(podAt("ns", "own", "10.244.1.4"))
	passes("")
	// A pod that a feature has reported need not wait until both have reported all of theirs.
	led.Set("eg", []netip.Addr{netip.MustParseAddr("10.244.1.4"), netip.MustParseAddr("10.244.2.4")})
	w.egress[0].MarkSynced()
	passes(own)
	led.MarkSynced()
	passes(own)
	led.Set("eg", nil)
	passes("")
	w.egress[0].Set("ns/own", []netip.Addr{netip.MustParseAddr("10.244.1.4")})
	passes(own)
	// A master that has just started and does not know yet keeps existing policies.
	w.stop()
	w.egress = []*noreroute.PodSet{noreroute.NewPodSet()}
	w.start()
	passes(own)
	w.egress[0].Set("ns/own", []netip.Addr{netip.MustParseAddr("10.244.1.4")})
	w.egress[0].MarkSynced()
	passes(own)
	if err := w.kube.CoreV1().Pods("ns").Delete(t.Context(), "own", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	passes("")
}

// TestRepliesOfGoneService: a master that does not know yet which pods are rerouted removes the
// policies of Services that were deleted, or need none any more, while no master ran.
func TestRepliesOfGoneService(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"deleted": func(w *world) {
			if err := w.kube.CoreV1().Services("ns").Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"Cluster": func(w *world) {
			svc, err := w.kube.CoreV1().Services("ns").Get(t.Context(), "b", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			if _, err := w.kube.CoreV1().Services("ns").Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.conf.Egress = true
			w.egress = []*noreroute.PodSet{noreroute.NewPodSet()}
			w.set(localService())
			w.start()
			if _, err := w.kube.CoreV1().Pods("ns").Create(t.Context(), podAt("ns", "own", "10.244.1.4"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			policies := func() (n int) {
				for _, r := range w.nb.Rows(service.Owner("ns/b")) {
					if _, ok := r.Model.(*nbdb.LogicalRouterPolicy); ok {
						n++
					}
				}
				return n
			}
			w.egress[0].Set("ns/own", []netip.Addr{netip.MustParseAddr("10.244.1.4")})
			w.egress[0].MarkSynced()
			eventually.True(t, "policies", func() bool { return policies() > 0 })
			w.stop()
			change(w)
			w.egress = []*noreroute.PodSet{noreroute.NewPodSet()}
			w.start()
			eventually.True(t, "no policies", func() bool { return policies() == 0 })
		})
	}
}
