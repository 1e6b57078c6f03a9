package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	servicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// brief summarizes for each family the outcome, the deciding object, the sources and the
// gateways.
func brief(p Pod) string {
	var out []string
	for _, f := range p.Families {
		text := fmt.Sprintf("%s %s", f.Family, f.Outcome)
		if f.By != "" {
			text += " by " + f.By
		}
		for _, s := range f.Sources {
			text += " " + s.Address + "@" + s.Node
			if s.Secondary || s.Address == "" {
				text += "[" + s.Network + "]"
			}
		}
		for _, g := range f.Gateways {
			text += " via " + g.Address
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

const (
	web4 = "IPv4 NodeAddress 172.18.0.3@ovn-worker"
	web6 = "IPv6 NodeAddress fc00:f853:ccd:e793::3@ovn-worker"
)

func drop(s *Snapshot) {
	for _, e := range s.EgressIPs {
		e.Spec.OnUnavailable = ipv1.UnavailableDrop
	}
	for _, e := range s.EgressServices {
		e.Spec.OnUnavailable = servicev1.UnavailableDrop
	}
}

func unlabelled(s *Snapshot) {
	for _, n := range s.Nodes {
		delete(n.Labels, kube.LabelEgressAssignable)
	}
}

func notReady(name string) func(*Snapshot) {
	return func(s *Snapshot) {
		for _, n := range s.Nodes {
			if n.Name == name {
				n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, ago(30*time.Second)
			}
		}
	}
}

// silent makes a node unreachable: it does not answer the master's probes.
func silent(name string) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Reachability.Nodes[name] = reachability.Node{State: reachability.Unreachable, Since: taken.Add(-10 * time.Second)}
	}
}

func podOf(change func(*corev1.Pod)) func(*Snapshot) { return func(s *Snapshot) { change(s.Pods[0]) } }

// hostIs makes a node the host of the first EgressService.
func hostIs(name string) func(*Snapshot) {
	return func(s *Snapshot) { s.EgressServices[0].Status.Host = name }
}

// moveTo makes the master choose another host, which has not acknowledged yet.
func moveTo(name string) func(*Snapshot) {
	return func(s *Snapshot) {
		s.EgressServices[0].Status.Host = name
		s.EgressServices[0].Status.Conditions[1].Status = metav1.ConditionFalse
	}
}

func gatewayPod(s *Snapshot) {
	p := pod("infra/gw", "ovn-worker2", 9)
	p.Annotations = map[string]string{kube.AnnotationRoutingNamespaces: "prod", kube.AnnotationRoutingNetwork: "ext",
		kube.AnnotationNetworkStatus: `[{"name":"infra/ext","ips":["172.18.0.61"]}]`}
	s.Pods = append(s.Pods, p)
}

// lost makes Kubernetes lose contact with nodes: the gateway pod becomes not ready, too.
func lost(nodes ...string) func(*Snapshot) {
	return func(s *Snapshot) {
		for _, n := range s.Nodes {
			if slices.Contains(nodes, n.Name) {
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			}
		}
		s.Pods[2].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
	}
}

// api adds an API server outside the cluster, with its Service.
func api(s *Snapshot) { outsideService("default/kubernetes", "10.96.0.1", "203.0.113.10")(s) }

// outsideService adds a Service without a selector.
func outsideService(key, clusterIP string, endpoints ...string) func(*Snapshot) {
	return func(s *Snapshot) {
		namespace, name, _ := strings.Cut(key, "/")
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = clusterIP, []string{clusterIP}
		svc.Spec.Ports = []corev1.ServicePort{{Port: 443}}
		s.Services = append(s.Services, svc)
		s.EndpointSlices = append(s.EndpointSlices, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			Ports:      []discoveryv1.EndpointPort{{Port: new(int32(443))}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: endpoints}}})
	}
}

// endpoints changes all endpoints of Services.
func endpoints(change func(*discoveryv1.Endpoint)) func(*Snapshot) {
	return func(s *Snapshot) {
		for _, sl := range s.EndpointSlices {
			for i := range sl.Endpoints {
				change(&sl.Endpoints[i])
			}
		}
	}
}

func onHost(p *corev1.Pod) { p.Spec.HostNetwork = true }

func unready(e *discoveryv1.Endpoint) { e.Conditions.Ready = new(false) }

func ending(e *discoveryv1.Endpoint) {
	e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
}

// internalLocal restricts the first EgressService's Service to endpoints on the client's node, and says on which node
// the endpoints are.
func internalLocal(s *Snapshot) {
	s.Services[0].Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	endpoints(func(e *discoveryv1.Endpoint) { e.NodeName = new("ovn-worker") })(s)
}

// shared sets the nodes to shared gateway mode.
func shared(s *Snapshot) {
	for _, n := range s.Nodes {
		known, _ := kube.Node(n)
		known.Gateway.Mode = topology.GatewayShared
		n.Annotations[kube.AnnotationL3Gateway] = kube.FormatL3Gateway(known.Gateway)
	}
}

// loadBalanced gives the first EgressService's Service a port, and a cluster IP.
func loadBalanced(s *Snapshot) {
	s.Services[0].Spec.Ports = []corev1.ServicePort{{Port: 8080, NodePort: 30080}}
	s.Services[0].Spec.ClusterIPs = []string{"10.96.0.7"}
}

func TestPod(t *testing.T) {
	type change = func(*Snapshot)
	for _, tc := range []struct {
		name, pod, to string
		world         []change
		want          string
		problems      string // the reasons, in order
	}{
		{name: "nothing selects it", want: web4 + "; " + web6},
		{name: "EgressIP", world: []change{egressIP("prod", "prod", "172.18.0.33", "fc00:f853:ccd:e793::33"), inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2; IPv6 EgressIP by EgressIP/prod fc00:f853:ccd:e793::33@ovn-worker"},
		{name: "EgressIP of one family", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2; " + web6},
		{name: "two addresses", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33", "172.18.0.44"), inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2 172.18.0.44@ovn-worker"},
		{name: "one of two addresses for the pod", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33", "172.18.0.44"),
			func(s *Snapshot) { s.EgressIPs[0].Spec.AddressAffinity = ipv1.AddressAffinityPod }, inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.44@ovn-worker"},
		{name: "another network", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.19.0.33"), inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.19.0.33@ovn-worker2[172.19.0.0/24]"},
		{name: "the older of two EgressIPs", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), egressIP("also", "prod", "172.18.0.44"), inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2"},
		{name: "not programmed", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce,
			func(s *Snapshot) { s.EgressIPs[0].Status.Programmed = nil }},
			want: "IPv4 Unknown by EgressIP/prod", problems: "Waiting"},
		{name: "held until programmed", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce,
			func(s *Snapshot) { s.EgressIPs[0].Status.Programmed = nil },
			podOf(func(p *corev1.Pod) { p.Annotations = map[string]string{kube.AnnotationEgressPending: "prod"} })},
			want: "IPv4 Held by EgressIP/prod", problems: "Waiting"},
		{name: "still held by the node before", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce,
			func(s *Snapshot) {
				s.EgressIPs[0].Status.Items[0].Node = "ovn-worker"
			}},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2", problems: "Waiting"},
		{name: "still held by the node before, which Kubernetes has lost sight of", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce, notReady("ovn-worker2"),
			func(s *Snapshot) { s.EgressIPs[0].Status.Items[0].Node = "ovn-worker" }},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2", problems: "Waiting"},
		{name: "still held by the node before, which is lost", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce, silent("ovn-worker2"),
			func(s *Snapshot) { s.EgressIPs[0].Status.Items[0].Node = "ovn-worker" }},
			want: "IPv4 Unknown by EgressIP/prod", problems: "Waiting"},
		{name: "no node", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), unlabelled, inForce},
			want: web4, problems: "NoNode,NotAssigned"},
		{name: "no node, Drop", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), unlabelled, drop, inForce},
			want: "IPv4 Dropped by EgressIP/prod", problems: "NoNode,NotAssigned"},
		{name: "the node is lost and the master is down", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce, notReady("ovn-worker2"),
			func(s *Snapshot) { s.Renewed = taken.Add(-time.Hour) }},
			want: "IPv4 Unknown by EgressIP/prod", problems: "MasterSilent,StatusDiffers,Waiting"},
		{name: "the status is outdated", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce, func(s *Snapshot) {
			s.EgressIPs[0].Generation, s.EgressIPs[0].Status.Conditions[0].ObservedGeneration = 2, 1
		}}, want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2", problems: "StatusOutdated"},
		{name: "no status", to: "192.0.2.1", world: []change{egressIP("prod", "prod", "172.18.0.33")},
			want: "IPv4 Unknown by EgressIP/prod", problems: "NoStatus,StatusDiffers,Waiting"},
		{name: "EgressService", pod: "shop/cart", world: []change{egressService("shop/checkout", "5.5.5.5", "5555::5"), inForce},
			want: "IPv4 EgressService by EgressService/shop/checkout 5.5.5.5@HOST; IPv6 EgressService by EgressService/shop/checkout 5555::5@HOST"},
		{name: "EgressService before EgressIP", pod: "shop/cart", to: "192.0.2.1", world: []change{egressIP("prod", "shop", "172.18.0.33"), egressService("shop/checkout", "5.5.5.5"), inForce},
			want: "IPv4 EgressService by EgressService/shop/checkout 5.5.5.5@HOST"},
		{name: "an EgressIP in the family that the EgressService has no address of", pod: "shop/cart", to: "2001:db8::1",
			world: []change{egressIP("prod", "shop", "fc00:f853:ccd:e793::33"), egressService("shop/checkout", "5.5.5.5"), inForce},
			want:  "IPv6 EgressIP by EgressIP/prod fc00:f853:ccd:e793::33@ovn-worker2"},
		{name: "EgressService without a Service", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout", "5.5.5.5"), func(s *Snapshot) { s.Services = nil }, inForce},
			want: web4, problems: "ServiceNotFound,NotAssigned"},
		{name: "EgressService with nobody to serve it, Drop", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout", "5.5.5.5"),
			notReady("ovn-worker2"), notReady("ovn-control-plane"), notReady("ovn-worker"), drop, inForce},
			want: "IPv4 Dropped by EgressService/shop/checkout", problems: "NodeNotReady,NoNode,NotAssigned"},
		{name: "EgressService not acknowledged", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout", "5.5.5.5"), drop, inForce, func(s *Snapshot) {
			s.EgressServices[0].Status.Programmed, s.EgressServices[0].Status.Conditions = nil, nil
		}}, want: "IPv4 Held by EgressService/shop/checkout", problems: "NoStatus"},
		{name: "the host moves", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout", "5.5.5.5"), hostIs("ovn-control-plane"), inForce, moveTo("ovn-worker2")},
			want: "IPv4 EgressService by EgressService/shop/checkout 5.5.5.5@ovn-control-plane", problems: "Programmed"},
		{name: "the host moves, and the one before is lost", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout", "5.5.5.5"), hostIs("ovn-control-plane"), inForce,
			silent("ovn-control-plane"), moveTo("ovn-worker2")}, want: "IPv4 Held by EgressService/shop/checkout", problems: "Programmed"},
		{name: "the host moves, and Kubernetes has lost sight of the one before", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout", "5.5.5.5"), hostIs("ovn-control-plane"), inForce,
			notReady("ovn-control-plane"), moveTo("ovn-worker2")}, want: "IPv4 EgressService by EgressService/shop/checkout 5.5.5.5@ovn-control-plane", problems: "Programmed"},
		{name: "the host moves, and the one before had other pods", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout", "5.5.5.5"), hostIs("ovn-control-plane"), inForce,
			func(s *Snapshot) { s.EgressServices[0].Status.Programmed.Digest = "other" }, moveTo("ovn-worker2")}, want: "IPv4 Held by EgressService/shop/checkout", problems: "Programmed"},
		{name: "sourceIPBy Network", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout"), func(s *Snapshot) {
			s.EgressServices[0].Spec.SourceIPBy, s.EgressServices[0].Spec.Network = servicev1.SourceIPNetwork, "blue"
		}, inForce}, want: "IPv4 EgressService by EgressService/shop/checkout @ovn-worker[blue]"},
		{name: "EgressIP before sourceIPBy Network", pod: "shop/cart", to: "192.0.2.1", world: []change{egressIP("prod", "shop", "172.18.0.33"), egressService("shop/checkout"), func(s *Snapshot) {
			s.EgressServices[0].Spec.SourceIPBy, s.EgressServices[0].Spec.Network = servicev1.SourceIPNetwork, "blue"
		}, inForce}, want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2"},
		{name: "sourceIPBy Network in the family that the EgressIP has no address of", pod: "shop/cart", to: "2001:db8::1", world: []change{egressIP("prod", "shop", "172.18.0.33"), egressService("shop/checkout"), func(s *Snapshot) {
			s.EgressServices[0].Spec.SourceIPBy, s.EgressServices[0].Spec.Network = servicev1.SourceIPNetwork, "blue"
		}, inForce}, want: "IPv6 EgressService by EgressService/shop/checkout @ovn-worker[blue]"},
		{name: "static gateways", world: []change{route("gws", "prod", "172.18.0.51", "172.18.0.52"), inForce},
			want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 172.18.0.3@ovn-worker via 172.18.0.51 via 172.18.0.52; " + web6},
		{name: "a gateway by the second uplink", to: "192.0.2.1", world: []change{route("gws", "prod", "172.19.0.51"), secondUplink, inForce},
			want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 172.19.0.3@ovn-worker via 172.19.0.51"},
		{name: "gateways by both uplinks", to: "192.0.2.1", world: []change{route("gws", "prod", "172.18.0.51", "172.19.0.51"), secondUplink, inForce},
			want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 172.18.0.3@ovn-worker 172.19.0.3@ovn-worker via 172.18.0.51 via 172.19.0.51"},
		{name: "a gateway by the second uplink of the node that holds the address", to: "192.0.2.1", world: []change{route("gws", "prod", "172.19.0.51"), secondUplink,
			egressIP("prod", "prod", "172.18.0.33"), func(s *Snapshot) { delete(s.Nodes[2].Labels, kube.LabelEgressAssignable) }, inForce},
			want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 172.19.0.3@ovn-worker via 172.19.0.51"},
		{name: "gateways before all others", pod: "shop/cart", to: "192.0.2.1", world: []change{route("gws", "shop", "172.18.0.51"),
			egressIP("prod", "shop", "172.18.0.33"), egressService("shop/checkout", "5.5.5.5"), inForce},
			want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 172.18.0.3@ovn-worker via 172.18.0.51"},
		{name: "gateways on the node that holds the address", pod: "shop/cart", to: "2001:db8::1", world: []change{route("gws", "shop", "fc00:f853:ccd:e793::51"),
			egressIP("prod", "shop", "fc00:f853:ccd:e793::33"), func(s *Snapshot) { delete(s.Nodes[2].Labels, kube.LabelEgressAssignable) }, inForce},
			want: "IPv6 ExternalGateways by AdminPolicyBasedExternalRoute/gws fc00:f853:ccd:e793::33@ovn-worker via fc00:f853:ccd:e793::51"},
		{name: "skipHostSNAT", to: "192.0.2.1", world: []change{route("gws", "prod", "172.18.0.51"), func(s *Snapshot) {
			s.Routes[0].Spec.NextHops.Static[0].SkipHostSNAT = true
		}, inForce}, want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 10.244.1.3@ovn-worker via 172.18.0.51"},
		{name: "no translation with gateways", to: "192.0.2.1", world: []change{route("gws", "prod", "172.18.0.51"), func(s *Snapshot) {
			s.Settings.DisableSNATMultipleGWs = true
		}, inForce}, want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 10.244.1.3@ovn-worker via 172.18.0.51"},
		{name: "a gateway pod", to: "192.0.2.1", world: []change{route("gws", "prod"), gatewayPod, func(s *Snapshot) {
			s.Pods[2].Annotations[kube.AnnotationRoutingNamespaces] = ""
			s.Routes[0].Spec.NextHops.Dynamic = []routev1.DynamicHop{{NetworkAttachmentName: "ext",
				PodSelector:       metav1.LabelSelector{MatchLabels: map[string]string{"app": "gw"}},
				NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"name": "infra"}}}}
		}, inForce}, want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 172.18.0.3@ovn-worker via 172.18.0.61"},
		{name: "the annotation of a namespace", to: "192.0.2.1", world: []change{func(s *Snapshot) {
			s.Namespaces[0].Annotations = map[string]string{kube.AnnotationRoutingExternalGWs: "172.18.0.51"}
		}, inForce}, want: "IPv4 ExternalGateways by Namespace/prod 172.18.0.3@ovn-worker via 172.18.0.51"},
		{name: "the annotation of a gateway pod", to: "192.0.2.1", world: []change{gatewayPod, inForce},
			want: "IPv4 ExternalGateways by Pod/infra/gw 172.18.0.3@ovn-worker via 172.18.0.61"},
		{name: "gateways that the master has not put in use", to: "192.0.2.1", world: []change{route("gws", "prod", "172.18.0.51"), inForce, func(s *Snapshot) {
			delete(s.Namespaces[0].Annotations, kube.AnnotationGatewaysInUse)
		}}, want: "IPv4 ExternalGateways by AdminPolicyBasedExternalRoute/gws 172.18.0.3@ovn-worker via 172.18.0.51", problems: "StatusDiffers"},
		{name: "disabled features", to: "192.0.2.1", world: []change{route("gws", "prod", "172.18.0.51"), egressIP("prod", "prod", "172.18.0.33"), func(s *Snapshot) {
			s.Settings.EgressIP, s.Settings.ExternalGateways = false, false
		}}, want: web4},
		{name: "to a pod", to: "10.244.2.7", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce}, want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to an address of no Service", to: "10.96.0.1", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce}, want: "IPv4 NotEgress"},
		{name: "to a port that the Service does not have", to: "10.96.0.7:81", world: []change{egressService("shop/checkout", "5.5.5.5"), egressIP("prod", "prod", "172.18.0.33"), loadBalanced, inForce},
			want: "IPv4 NotEgress"},
		{name: "to an address of no Service, by the kernel of the node", to: "10.96.0.1", want: "IPv4 NotEgress"},
		{name: "to an address of no Service, by the kernel of the host", pod: "shop/cart", to: "10.96.0.1", world: []change{egressService("shop/checkout", "5.5.5.5"), inForce}, want: "IPv4 NotEgress"},
		{name: "to an address of no Service, in shared gateway mode", to: "10.96.0.1", world: []change{shared}, want: "IPv4 NotEgress"},
		{name: "to the address of an EgressIP", to: "172.18.0.33", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce}, want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2"},
		{name: "to the pod's own node", to: "172.18.0.3", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce}, want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to another address of the pod's own node", to: "172.19.0.3", want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to another address of the pod's own node, in shared gateway mode", to: "172.19.0.3", world: []change{shared}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to a node on another network", to: "172.19.0.4", want: "IPv4 NotEgress 172.19.0.3@ovn-worker"},
		{name: "to a node on another network, in shared gateway mode", to: "172.19.0.4", world: []change{shared}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to another address of the pod's own node, with gateways in shared gateway mode", to: "172.19.0.3", world: []change{shared, route("gws", "prod", "172.18.0.51"), inForce},
			want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a node on another network, with gateways in shared gateway mode", to: "172.19.0.4", world: []change{shared, route("gws", "prod", "172.18.0.51"), inForce},
			want: "IPv4 NotEgress 172.19.0.3@ovn-worker"},
		{name: "to a node on another network, with gateways of the other family in shared gateway mode", to: "172.19.0.4", world: []change{shared, route("gws", "prod", "fc00:f853:ccd:e793::51"), inForce},
			want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to a machine on another network of the node", to: "172.19.0.99", want: "IPv4 NodeAddress 172.19.0.3@ovn-worker"},
		{name: "to a node port of the pod's own node", to: "172.18.0.3:30080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, inForce}, want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a node port of another node", to: "172.18.0.4:30080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, inForce}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to a Service whose endpoint is the pod's own node", to: "10.96.0.1:443", world: []change{outsideService("default/kubernetes", "10.96.0.1", "172.18.0.3"), inForce},
			want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a Service whose endpoints are nodes", to: "10.96.0.1:443", world: []change{outsideService("default/kubernetes", "10.96.0.1", "172.18.0.3", "172.18.0.2"), inForce},
			want: "IPv4 NotEgress 10.244.1.3@ovn-worker 172.18.0.3@ovn-worker"},
		{name: "its own node does not answer the probes", to: "192.0.2.1", world: []change{inForce, silent("ovn-worker")}, want: web4, problems: "NodeUnreachable"},
		{name: "to a node", to: "172.18.0.4", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to the metadata of a cloud", to: "169.254.169.254", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to an API server that is no node", to: "203.0.113.10:6443", world: []change{egressIP("prod", "prod", "172.18.0.33"), api, inForce}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to the Service of an API server that is no node", to: "10.96.0.1:443", world: []change{egressIP("prod", "prod", "172.18.0.33"), api, inForce}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to an address of a node that only Kubernetes knows", to: "198.51.100.4", world: []change{egressIP("prod", "prod", "172.18.0.33"), func(s *Snapshot) {
			s.Nodes[2].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "198.51.100.4"}}
		}, inForce}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to a router of the cluster", to: "100.64.0.3", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce}, want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to the pod's own link", to: "fe80::1", world: []change{egressIP("prod", "prod", "fc00:f853:ccd:e793::33"), inForce}, want: "IPv6 NotEgress"},
		{name: "to a Service with pods", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), egressIP("prod", "prod", "172.18.0.33"), loadBalanced, inForce},
			want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a load balancer's address", to: "5.5.5.5:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), egressIP("prod", "prod", "172.18.0.33"), loadBalanced, inForce},
			want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a load balancer's address at another port", to: "5.5.5.5:9", world: []change{egressService("shop/checkout", "5.5.5.5"), egressIP("prod", "prod", "172.18.0.33"), loadBalanced, inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2"},
		{name: "to a load balancer's address at any port", to: "5.5.5.5", world: []change{egressService("shop/checkout", "5.5.5.5"), egressIP("prod", "prod", "172.18.0.33"), loadBalanced, inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2"},
		{name: "to a Service whose endpoints are outside", to: "10.96.0.8:443", world: []change{egressIP("prod", "prod", "172.18.0.33"), outsideService("prod/db", "10.96.0.8", "192.0.2.9"), inForce},
			want: "IPv4 EgressIP by EgressIP/prod 172.18.0.33@ovn-worker2"},
		{name: "to a Service whose endpoints are not ready", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, endpoints(unready), inForce}, want: "IPv4 NotEgress"},
		{name: "to a Service whose endpoints end, but still serve", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, endpoints(ending), inForce},
			want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a Service whose endpoints outside are not ready", to: "10.96.0.8:443", world: []change{egressIP("prod", "prod", "172.18.0.33"),
			outsideService("prod/db", "10.96.0.8", "192.0.2.9"), endpoints(unready), inForce}, want: "IPv4 NotEgress"},
		{name: "to a port of a Service that no slice has", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced,
			func(s *Snapshot) { s.Services[0].Spec.Ports[0].Name = "web" }, inForce}, want: "IPv4 NotEgress"},
		{name: "to a Service with internalTrafficPolicy Local, with an endpoint on the node", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, internalLocal, inForce},
			want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a Service with internalTrafficPolicy Local, without an endpoint on the node", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, internalLocal,
			endpoints(func(e *discoveryv1.Endpoint) { e.NodeName = new("ovn-worker2") }), inForce}, want: "IPv4 NotEgress"},
		{name: "to an external address of a Service with internalTrafficPolicy Local", to: "5.5.5.5:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, internalLocal,
			endpoints(func(e *discoveryv1.Endpoint) { e.NodeName = new("ovn-worker2") }), inForce}, want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a Service of another proxy", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, func(s *Snapshot) {
			s.Services[0].Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
		}, inForce}, want: "IPv4 NotEgress"},
		{name: "to a node that is a load balancer", to: "172.18.0.4:8080", world: []change{egressService("shop/checkout", "172.18.0.4"), loadBalanced, inForce}, want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a node that is a load balancer, at a port of its own", to: "172.18.0.4:22", world: []change{egressService("shop/checkout", "172.18.0.4"), loadBalanced,
			func(s *Snapshot) { s.Services[0].Spec.Ports[0].Port = 22 }, inForce}, want: "IPv4 NotEgress 172.18.0.3@ovn-worker"},
		{name: "to an external IP that an older Service has", to: "5.5.5.5:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, outsideService("abc/younger", "10.96.0.9", "192.0.2.9"), func(s *Snapshot) {
			s.Services[1].CreationTimestamp, s.Services[1].Spec.ExternalIPs, s.Services[1].Spec.Ports[0].Port = ago(time.Minute), []string{"5.5.5.5"}, 8080
		}, inForce}, want: "IPv4 NotEgress 10.244.1.3@ovn-worker"},
		{name: "to a Service without endpoints", to: "10.96.0.8:443", world: []change{egressIP("prod", "prod", "172.18.0.33"), outsideService("prod/db", "10.96.0.8"), inForce}, want: "IPv4 NotEgress"},
		{name: "an annotation that names no usable gateway", to: "192.0.2.1", world: []change{func(s *Snapshot) {
			s.Namespaces[0].Annotations = map[string]string{kube.AnnotationRoutingExternalGWs: "172.18.0.51,10.244.0.9,nothing"}
		}, inForce}, want: "IPv4 ExternalGateways by Namespace/prod 172.18.0.3@ovn-worker via 172.18.0.51", problems: "GatewayRefused,GatewayRefused"},
		{name: "a gateway pod of a node that Kubernetes has lost sight of", to: "192.0.2.1", world: []change{gatewayPod, inForce, lost("ovn-worker2")}, want: web4, problems: "StatusDiffers"},
		{name: "a gateway pod while Kubernetes has lost sight of all nodes", to: "192.0.2.1", world: []change{gatewayPod, inForce, lost("ovn-control-plane", "ovn-worker", "ovn-worker2")},
			want: "IPv4 ExternalGateways by Pod/infra/gw 172.18.0.3@ovn-worker via 172.18.0.61"},
		{name: "a gateway pod that is not ready", to: "192.0.2.1", world: []change{gatewayPod, func(s *Snapshot) { s.Pods[2].Status.Conditions = nil }, inForce}, want: web4},
		{name: "a gateway pod without an address", to: "192.0.2.1", world: []change{gatewayPod, func(s *Snapshot) { delete(s.Pods[2].Annotations, kube.AnnotationNetworkStatus) }, inForce},
			want: web4, problems: "GatewayRefused"},
		{name: "a gateway pod of the other family", to: "2001:db8::1", world: []change{gatewayPod, inForce}, want: web6},
		{name: "a pod among others that the host has not acknowledged", pod: "shop/cart", to: "192.0.2.1", world: []change{egressService("shop/checkout", "5.5.5.5"), inForce,
			func(s *Snapshot) { s.EgressServices[0].Status.Programmed.Digest = "other" }, func(s *Snapshot) { s.EgressServices[0].Status.Conditions[1].Status = metav1.ConditionFalse }},
			want: "IPv4 Unknown by EgressService/shop/checkout", problems: "Programmed"},
		{name: "on the host's network", world: []change{egressIP("prod", "prod", "172.18.0.33"), inForce, podOf(func(p *corev1.Pod) { p.Spec.HostNetwork = true })},
			want: web4 + "; " + web6},
		{name: "on the host's network, and ended", world: []change{podOf(onHost), podOf(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, want: "IPv4 NoNetwork; IPv6 NoNetwork"},
		{name: "on the host's network, without a node", to: "192.0.2.1", world: []change{podOf(onHost), podOf(func(p *corev1.Pod) { p.Spec.NodeName = "" })}, want: "IPv4 NoNetwork", problems: "NoAddress"},
		{name: "on the host's network, to another node", to: "172.19.0.4", world: []change{podOf(onHost)}, want: "IPv4 NodeAddress 172.19.0.3@ovn-worker"},
		{name: "on the host's network, to a pod", to: "10.244.2.7", world: []change{podOf(onHost)}, want: "IPv4 NotEgress 10.244.1.2@ovn-worker"},
		{name: "on the host's network, to a Service with pods", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, podOf(onHost), inForce},
			want: "IPv4 NotEgress 10.244.1.2@ovn-worker"},
		{name: "on the host's network, to a load balancer's address", to: "5.5.5.5:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, podOf(onHost), inForce},
			want: "IPv4 NotEgress 10.244.1.2@ovn-worker"},
		{name: "on the host's network, to a Service whose endpoints are not ready", to: "10.96.0.7:8080", world: []change{egressService("shop/checkout", "5.5.5.5"), loadBalanced, endpoints(unready), podOf(onHost), inForce},
			want: "IPv4 NotEgress"},
		{name: "on the host's network, to a Service whose endpoints are hosts", to: "10.96.0.1:443", world: []change{outsideService("default/kubernetes", "10.96.0.1", "172.18.0.2"), podOf(onHost), inForce},
			want: "IPv4 NodeAddress 172.18.0.3@ovn-worker"},
		{name: "on the host's network, to an address of no Service", to: "10.96.0.9", world: []change{podOf(onHost)}, want: "IPv4 NotEgress"},
		{name: "without an address", to: "192.0.2.1", world: []change{podOf(func(p *corev1.Pod) { p.Status.PodIPs, p.Status.PodIP = nil, "" })},
			want: "IPv4 NoNetwork", problems: "NoAddress"},
		{name: "without a node", to: "192.0.2.1", world: []change{podOf(func(p *corev1.Pod) { p.Spec.NodeName = "" })}, want: "IPv4 NoNetwork", problems: "NoAddress"},
		{name: "ended", to: "192.0.2.1", world: []change{podOf(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, want: "IPv4 NoNetwork"},
		{name: "single stack", world: []change{podOf(func(p *corev1.Pod) { p.Status.PodIPs = p.Status.PodIPs[:1] })}, want: web4 + "; IPv6 NoNetwork"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key := tc.pod
			if key == "" {
				key = "prod/web"
			}
			s := world(tc.world...)
			p := ask(t, s, key, tc.to)
			want := tc.want
			if len(s.EgressServices) > 0 {
				want = strings.ReplaceAll(want, "HOST", s.EgressServices[0].Status.Host)
			}
			if got := brief(p); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			var reasons []string
			for _, q := range p.Problems {
				reasons = append(reasons, q.Reason)
			}
			for _, f := range p.Families {
				for _, q := range f.Problems {
					reasons = append(reasons, q.Reason)
				}
			}
			if got := strings.Join(reasons, ","); got != tc.problems || p.InPlace != (tc.problems == "") {
				t.Errorf("problems %q, in place %v; want %q", got, p.InPlace, tc.problems)
			}
			if t.Failed() {
				var text strings.Builder
				p.Text(&text)
				t.Log(text.String())
			}
		})
	}
}

func TestUnknownPod(t *testing.T) {
	c, err := New(*world())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pod("prod/nobody", netip.AddrPort{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want that it is not found", err)
	}
}

// The samples in docs/explain.md.
func TestSamples(t *testing.T) {
	for name, tc := range map[string]struct {
		pod   string
		world *Snapshot
	}{
		"egressip": {"prod/web", world(egressIP("prod", "prod", "172.18.0.33"), egressIP("also", "prod", "172.18.0.44"), inForce)},
		"waiting":  {"prod/web", world(egressIP("prod", "prod", "172.18.0.33"), inForce, notReady("ovn-worker2"), masterGone)},
		"all": {"shop/cart", world(route("gws", "shop", "172.18.0.51"), egressIP("prod", "shop", "172.18.0.33"),
			egressService("shop/checkout", "5.5.5.5"), inForce)},
	} {
		t.Run(name, func(t *testing.T) {
			p := ask(t, tc.world, tc.pod, "192.0.2.1")
			var text strings.Builder
			p.Text(&text)
			golden.Check(t, "pod-"+name+".txt", text.String())
			data, err := json.MarshalIndent(p, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "pod-"+name+".json", string(data)+"\n")
		})
	}
}

// docs/explain.md shows the output of the command.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pod-egressip.txt", "pod-all.txt", "pod-waiting.txt", "pod-egressip.json", "egressip.txt",
		"address.txt", "address-free.txt", "service.txt", "node.txt", "status.txt"} {
		sample, err := os.ReadFile("testdata/" + name + ".golden")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(doc), string(sample)) {
			t.Errorf("docs/explain.md does not have the content of testdata/%s.golden", name)
		}
	}
	for outcome := range headlines {
		if !strings.Contains(string(doc), "`"+string(outcome)+"`") {
			t.Errorf("docs/explain.md does not tell of outcome %s", outcome)
		}
	}
}

// TestLeadsAway: on the node that holds the addresses of an EgressIP on a secondary network,
// the table of an EgressService takes precedence, if it has one.
func TestLeadsAway(t *testing.T) {
	v := &view{node: topology.Node{Name: "here"}}
	table, none := verdict{sources: []Source{{Network: "blue"}}}, verdict{sources: []Source{{}}}
	by := func(sources ...Source) verdict { return verdict{outcome: OutcomeEgressIP, sources: sources} }
	here, there := Source{Node: "here", Secondary: true}, Source{Node: "there", Secondary: true}
	for _, c := range []struct {
		name        string
		ip, service verdict
		want        bool
	}{
		{"another network, here", by(here), table, false},
		{"another network, there", by(there), table, true},
		{"another network, here and there", by(here, there), table, true},
		{"the nodes' network, here", by(Source{Node: "here"}), table, true},
		{"no table", by(here), none, true},
		{"nothing of it", verdict{}, table, false},
		{"dropped", verdict{outcome: OutcomeDropped}, table, true},
	} {
		if got := v.bypassesServiceTable(c.ip, c.service); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestImplementedBy: only the rows and rules of the pod and its family are listed.
func TestImplementedBy(t *testing.T) {
	type change = func(*Snapshot)
	host := hostIs("ovn-worker2")
	network := func(s *Snapshot) { s.EgressServices[0].Spec.Network = "blue" }
	for _, tc := range []struct {
		name, pod, to string
		world         []change
		want          []string
	}{
		{"nothing", "prod/web", "192.0.2.1", nil, nil},
		{"two addresses of an EgressIP", "prod/web", "192.0.2.1", []change{egressIP("prod", "prod", "172.18.0.33", "172.18.0.44", "fc00:f853:ccd:e793::33"), inForce}, []string{
			`: Logical_Router_Policy in ovn_cluster_router: action=reroute external_ids={egress-ips="100.64.0.3=172.18.0.44,100.64.0.4=172.18.0.33", name=prod} match="ip4.src == 10.244.1.3" nexthops=[100.64.0.3, 100.64.0.4] priority=100`,
			": NAT in GR_ovn-worker: external_ids={name=prod} external_ip=172.18.0.44 logical_ip=10.244.1.3 logical_port=k8s-ovn-worker type=snat",
			": NAT in GR_ovn-worker2: external_ids={name=prod} external_ip=172.18.0.33 logical_ip=10.244.1.3 logical_port=k8s-ovn-worker2 type=snat"}},
		{"another network", "prod/web", "192.0.2.1", []change{egressIP("prod", "prod", "172.19.0.33"), inForce}, []string{
			`: Logical_Router_Policy in ovn_cluster_router: action=reroute external_ids={egress-ips="10.244.2.2=172.19.0.33", name=prod} match="ip4.src == 10.244.1.3" nexthops=[10.244.2.2] priority=100`,
			"ovn-worker2: rule 6000: from 10.244.1.3 to the routing table of the interface in 172.19.0.0/24",
			"ovn-worker2: nat OVN-KUBE-EGRESS-IP-MULTI-NIC: what is from 10.244.1.3 and leaves by it gets the address 172.19.0.33"}},
		{"an EgressService", "shop/cart", "192.0.2.1", []change{egressService("shop/checkout", "5.5.5.5", "5555::5"), host, inForce}, []string{
			`: Logical_Router_Policy in ovn_cluster_router: action=reroute external_ids={EgressSVC=shop/checkout} match="ip4.src == 10.244.1.4" nexthops=[10.244.2.2] priority=101`,
			`ovn-worker2: nat OVN-KUBE-EGRESS-SVC: -s 10.244.1.4/32 -m comment --comment "shop/checkout" -j SNAT --to-source 5.5.5.5`}},
		{"an EgressService with a network", "shop/cart", "192.0.2.1", []change{egressService("shop/checkout", "5.5.5.5"), host, network, inForce}, []string{
			`: Logical_Router_Policy in ovn_cluster_router: action=reroute external_ids={EgressSVC=shop/checkout} match="ip4.src == 10.244.1.4" nexthops=[10.244.2.2] priority=101`,
			`ovn-worker2: nat OVN-KUBE-EGRESS-SVC: -s 10.244.1.4/32 -m comment --comment "shop/checkout" -j SNAT --to-source 5.5.5.5`,
			"ovn-worker2: rule 5000: from 10.244.1.4 to the routing table blue"}},
		{"every node", "shop/cart", "2001:db8::1", []change{egressService("shop/checkout"), network, func(s *Snapshot) { s.EgressServices[0].Spec.SourceIPBy = servicev1.SourceIPNetwork }, inForce}, []string{
			"ovn-worker: rule 5000: from fd00:10:244:2::4 to the routing table blue"}},
		{"a destination inside", "prod/web", "10.244.2.9", []change{egressIP("prod", "prod", "172.18.0.33"), inForce}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, i := range ask(t, world(tc.world...), tc.pod, tc.to).Families[0].ImplementedBy {
				got = append(got, i.Node+": "+i.What)
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}
