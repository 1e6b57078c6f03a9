package node_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestGatewaysComeAndGo: while the pods of a namespace have external gateways, the bridge
// sends traffic to their Services to the gateway router if client addresses are preserved,
// and to the host otherwise.
func TestGatewaysComeAndGo(t *testing.T) {
	for mode, handed := range map[topology.GatewayMode][2]string{
		topology.GatewayLocal:  {"", "5.5.5.6"},
		topology.GatewayShared: {"5.5.5.5 5.5.5.6", "5.5.5.6"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t, mode)
			for name, policy := range map[string]corev1.ServiceExternalTrafficPolicy{
				"5": corev1.ServiceExternalTrafficPolicyCluster, "6": corev1.ServiceExternalTrafficPolicyLocal,
			} {
				s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
				s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0." + name, ClusterIPs: []string{"10.96.0." + name},
					ExternalTrafficPolicy: policy, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 80}}}
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "5.5.5." + name}}
				w.create(s)
				w.serve(name, "10.244.1.3@n1")
			}
			namespaces := w.kube.CoreV1().Namespaces()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
			if _, err := namespaces.Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			reaches := func(want string) {
				t.Helper()
				w.until("the bridge hands over "+want, func() bool {
					var got []string
					for _, to := range []string{"5.5.5.5", "5.5.5.6"} {
						if strings.Contains(w.flows.Dump(), "nw_dst="+to+",") {
							got = append(got, to)
						}
					}
					return strings.Join(got, " ") == want
				})
			}
			w.start()
			reaches(handed[0])
			for _, gateways := range []string{"172.18.0.51", ""} {
				// An entry of the bridge from the previous path.
				e := w.track("5.5.5.6:80", "10.244.1.9:8080")
				ns = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Annotations: map[string]string{kube.AnnotationGatewaysInUse: gateways}}}
				if _, err := namespaces.Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				if gateways == "" {
					reaches(handed[0])
				} else {
					reaches(handed[1])
				}
				w.until("connections by the other way to be forgotten", func() bool { return mode == topology.GatewayShared || !w.tracked(e) })
				w.start()
			}
		})
	}
}
