package master_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestGatewaysComeAndGo: the gateway router of a node in local gateway mode serves a
// Service while the pods of its namespace have external gateways, and gets what these pods
// send from the Service's target port.
func TestGatewaysComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.set(state{
		nodes:     map[string]topology.GatewayMode{"n1": local},
		services:  []*corev1.Service{object("a", at("10.96.0.10")), object("b", externalLocal)},
		endpoints: map[string][]string{"a": {"10.244.1.3@n1"}, "b": {"10.244.1.4@n1"}},
	})
	for namespace, addr := range map[string]string{"ns": "10.244.1.4", "others": "10.244.1.9"} {
		if _, err := w.kube.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"},
			Spec:       corev1.PodSpec{NodeName: "n1"},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: addr}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	annotate := func(namespace, gateways string) {
		t.Helper()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: map[string]string{kube.AnnotationGatewaysInUse: gateways}}}
		if _, err := w.kube.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// on returns what the gateway router serves for b, and where replies go.
	on := func() string {
		var got []string
		for _, r := range w.nb.Rows(service.Owner("ns/b")) {
			switch m := r.Model.(type) {
			case *nbdb.LoadBalancer:
				if r.Parent.Name == topology.GatewayRouter("n1") {
					got = append(got, m.Name)
				}
			case *nbdb.LogicalRouterPolicy:
				if m.Priority == topology.PriorityServicePort {
					got = append(got, m.Match, m.Nexthops[0])
				}
			}
		}
		return strings.Join(got, " ")
	}
	reaches := func(want string) {
		t.Helper()
		eventually.True(t, want, func() bool { return on() == want }, eventually.Dump(on))
	}
	const served = "Service_ns/b_TCP_router_GR_n1 ip4.src == {10.244.1.4} && tcp.src == 8080 100.64.0.2"
	w.start()
	reaches("")
	annotate("ns", "172.18.0.51")
	reaches(served)
	annotate("others", "172.18.0.51")
	w.start()
	reaches(served)
	annotate("ns", "fc00:f853:ccd:e793::51")
	reaches("")
	annotate("ns", "172.18.0.51,172.18.0.61")
	reaches(served)
	annotate("ns", "")
	reaches("")
}
