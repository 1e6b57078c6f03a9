package explain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	servicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// selection lists what selects a pod in the first family of an answer, what wins with "*", and the problems.
func selection(p Pod) string {
	var out []string
	for _, s := range p.Families[0].Selected {
		mark := "- "
		if s.Wins {
			mark = "* "
		}
		out = append(out, mark+s.Object+": "+s.Why)
	}
	return strings.Join(append(out, reasonsOf(p.Families[0].Problems)), "\n")
}

// TestRefusedEgressService: an EgressService that serves no pods is listed for the pods of its Service, with the reason.
func TestRefusedEgressService(t *testing.T) {
	type change = func(*Snapshot)
	spec := func(set func(*servicev1.EgressServiceSpec)) change {
		return func(s *Snapshot) { set(&s.EgressServices[0].Spec) }
	}
	byNetwork := func(network string) change {
		return spec(func(spec *servicev1.EgressServiceSpec) {
			spec.SourceIPBy, spec.Network = servicev1.SourceIPNetwork, network
		})
	}
	checkout := egressService("shop/checkout", "5.5.5.5")
	for _, tc := range []struct {
		name, to string
		world    []change
		want     string
	}{
		{"no ingress address", "192.0.2.1", []change{egressService("shop/checkout")},
			"- EgressService/shop/checkout: the Service has no ingress IP yet\nNoIngressIP,NotAssigned"},
		{"no Service", "192.0.2.1", []change{checkout, func(s *Snapshot) { s.Services = nil }},
			"- EgressService/shop/checkout: there is no Service of this name\nServiceNotFound,NotAssigned"},
		{"no load balancer", "2001:db8::1", []change{checkout, func(s *Snapshot) { s.Services[0].Spec.Type = corev1.ServiceTypeClusterIP }},
			"- EgressService/shop/checkout: the Service is of type ClusterIP, not LoadBalancer\nServiceNotLoadBalancer,NotAssigned"},
		{"an invalid network", "192.0.2.1", []change{checkout, byNetwork("a table")},
			`- EgressService/shop/checkout: network "a table" is not a name of a routing table` + "\nInvalidNetwork,NotAssigned"},
		{"an invalid selector", "192.0.2.1", []change{checkout, spec(func(spec *servicev1.EgressServiceSpec) {
			spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}}
		})}, `- EgressService/shop/checkout: nodeSelector is not valid: "Near" is not a valid label selector operator` + "\nInvalidNodeSelector,NotAssigned"},
		{"sourceIPBy Network in shared gateway mode", "192.0.2.1", []change{shared, checkout, byNetwork("blue")},
			"- EgressService/shop/checkout: sourceIPBy Network needs local gateway mode: in shared mode pods leave past the routing of the hosts\nSharedGatewayMode,NotAssigned"},
		{"no address of the family", "2001:db8::1", []change{checkout},
			"- EgressService/shop/checkout: the EgressService has no IPv6 address, and leaves this family alone\n"},
		{"no ingress address, and an EgressIP", "192.0.2.1", []change{egressIP("prod", "shop", "172.18.0.33"), egressService("shop/checkout")},
			"- EgressService/shop/checkout: the Service has no ingress IP yet\n* EgressIP/prod: its selectors choose the pod\nNoIngressIP,NotAssigned"},
		{"no ingress address, and gateways", "192.0.2.1", []change{route("gws", "shop", "172.18.0.51"), egressService("shop/checkout")},
			"* AdminPolicyBasedExternalRoute/gws: it selects namespace shop\n- EgressService/shop/checkout: the Service has no ingress IP yet\nNoIngressIP,NotAssigned"},
		{"the Service of another namespace lists it", "192.0.2.1", []change{egressService("shop/checkout"), func(s *Snapshot) {
			for _, slice := range s.EndpointSlices {
				slice.Namespace = "prod"
			}
			s.Services[0].Namespace, s.EgressServices[0].Namespace = "prod", "prod"
		}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := ask(t, world(append(tc.world, inForce)...), "shop/cart", tc.to)
			if got := selection(p); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestGatewayPodNotInUse: a pod that makes itself a gateway by annotation is listed with the reason while it cannot be one.
func TestGatewayPodNotInUse(t *testing.T) {
	type change = func(*Snapshot)
	const annotated = "Pod/infra/gw: its annotation k8s.ovn.org/routing-namespaces makes it a gateway of the namespace"
	gw := func(set func(*corev1.Pod)) change { return func(s *Snapshot) { set(s.Pods[2]) } }
	for _, tc := range []struct {
		name  string
		world []change
		want  string
	}{
		{"in use", []change{gatewayPod, inForce}, "* " + annotated + "\n"},
		{"not ready", []change{gatewayPod, gw(func(p *corev1.Pod) { p.Status.Conditions = nil }), inForce}, "- " + annotated + ", but it is not ready\n"},
		{"terminating", []change{gatewayPod, gw(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: taken} }), inForce}, "- " + annotated + ", but it is not ready\n"},
		{"on a lost node", []change{gatewayPod, lost("ovn-worker2"), inForce}, "- " + annotated + ", but it is not ready\n"},
		{"of another namespace", []change{gatewayPod, gw(func(p *corev1.Pod) {
			p.Status.Conditions, p.Annotations[kube.AnnotationRoutingNamespaces] = nil, "shop"
		}), inForce}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := ask(t, world(tc.world...), "prod/web", "192.0.2.1")
			if got := selection(p); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestGatewayOnOwnNode: a gateway that is the pod's own node decides nothing, and its objects say so.
func TestGatewayOnOwnNode(t *testing.T) {
	type change = func(*Snapshot)
	onHostOf := func(node, addr, routing string) change {
		return func(s *Snapshot) {
			p := pod("infra/gw", node, 9)
			p.Spec.HostNetwork, p.Status.PodIPs = true, []corev1.PodIP{{IP: addr}}
			p.Annotations = map[string]string{kube.AnnotationRoutingNamespaces: routing}
			s.Pods = append(s.Pods, p)
		}
	}
	dynamic := func(s *Snapshot) {
		s.Routes[0].Spec.NextHops.Dynamic = []routev1.DynamicHop{{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "gw"}},
			NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": "infra"}}}}
	}
	inNamespace := func(addr string) change {
		return func(s *Snapshot) {
			s.Namespaces[0].Annotations = map[string]string{kube.AnnotationRoutingExternalGWs: addr}
		}
	}
	const (
		policy    = "AdminPolicyBasedExternalRoute/gws: it selects namespace prod"
		annotated = "Pod/infra/gw: its annotation k8s.ovn.org/routing-namespaces makes it a gateway of the namespace"
		namespace = "Namespace/prod: its annotation k8s.ovn.org/routing-external-gws names gateways"
		own       = ", but its only IPv4 hop is the pod's own node"
	)
	for _, tc := range []struct {
		name  string
		world []change
		want  string
		by    string
	}{
		{"a gateway pod of a policy", []change{route("gws", "prod"), dynamic, onHostOf("ovn-worker", "172.18.0.3", "")}, "- " + policy + own + "\n", ""},
		{"a gateway pod of a policy on another node", []change{route("gws", "prod"), dynamic, onHostOf("ovn-worker2", "172.18.0.4", "")}, "* " + policy + "\n",
			"AdminPolicyBasedExternalRoute/gws"},
		{"a gateway pod by annotation", []change{onHostOf("ovn-worker", "172.18.0.3", "prod")}, "- " + annotated + own + "\n", ""},
		{"the annotation of the namespace", []change{inNamespace("172.18.0.3")}, "- " + namespace + own + "\nGatewayRefused", ""},
		{"another object has a hop", []change{route("gws", "prod", "172.18.0.51"), onHostOf("ovn-worker", "172.18.0.3", "prod")},
			"* " + policy + "\n- " + annotated + own + "\n", "AdminPolicyBasedExternalRoute/gws"},
		{"a policy of the own node, and another hop", []change{route("gws", "prod"), dynamic, onHostOf("ovn-worker", "172.18.0.3", ""), inNamespace("172.18.0.51")},
			"- " + policy + own + "\n* " + namespace + "\n", "Namespace/prod"},
		{"the own node has no gateway", []change{route("gws", "prod", "172.18.0.51"), func(s *Snapshot) { delete(s.Nodes[1].Annotations, kube.AnnotationL3Gateway) }},
			"- " + policy + ", but the pod's own node has no gateway router yet\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := ask(t, world(append(tc.world, inForce)...), "prod/web", "192.0.2.1")
			if got := selection(p); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
			if got := p.Families[0].By; got != tc.by {
				t.Errorf("decided by %q, want %q", got, tc.by)
			}
		})
	}
}

// TestGatewaysWithServiceOfEveryNode: no policy steers the pods of an EgressService that every node serves, so that its
// pods have the same rows for their gateways as others.
func TestGatewaysWithServiceOfEveryNode(t *testing.T) {
	gateways := []func(*Snapshot){route("gws", "shop", "172.18.0.51"), func(s *Snapshot) { s.Settings.DisableSNATMultipleGWs = true }}
	everyNode := func(s *Snapshot) { s.EgressServices[0].Spec.SourceIPBy = servicev1.SourceIPNetwork }
	rows := func(world *Snapshot) string {
		var text []string
		for _, part := range ask(t, world, "shop/cart", "192.0.2.1").Families[0].ImplementedBy {
			text = append(text, part.What)
		}
		return strings.Join(text, "\n")
	}
	want := rows(world(append(gateways, inForce)...))
	if got := rows(world(append(gateways, egressService("shop/checkout"), everyNode, inForce)...)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if steered := rows(world(append(gateways, egressService("shop/checkout", "5.5.5.5"), inForce)...)); !strings.Contains(steered, "NAT in GR_ovn-worker") {
		t.Errorf("a pod that is steered is not exempt from translation:\n%s", steered)
	}
}
