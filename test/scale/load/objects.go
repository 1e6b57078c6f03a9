package load

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// node returns a node whose kubelet and agent run.
func (s Size) node(i int) *corev1.Node {
	known := Node(i)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: known.Name, Labels: map[string]string{"kubernetes.io/hostname": known.Name}, Annotations: kube.FormatNode(known)}}
	if s.isEgressNode(i) {
		n.Labels[kube.LabelEgressAssignable] = ""
	}
	if s.isServiceHost(i) {
		n.Labels[labelServiceHost] = ""
	}
	n.Status = corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: known.Primary[0].Addr().String()}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
	}
	return n
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelGroup: name}}}
}

// PodName returns the name of a pod of a group.
func PodName(i int) string { return fmt.Sprintf("pod-%05d", i) }

// Pod returns a pod of a group on a node; the group is its namespace and its label.
func Pod(group string, i, node int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: group, Name: PodName(i), Labels: map[string]string{"app": group}},
		Spec: corev1.PodSpec{
			NodeName:   NodeName(node),
			Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}},
		},
	}
}

// Service returns a Service of the given type for a group of pods. Slice returns its endpoints.
func Service(group, name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: group, Name: name},
		Spec: corev1.ServiceSpec{
			Type: kind, Selector: map[string]string{"app": group},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// Slice returns an EndpointSlice of a Service with the given pods.
func Slice(svc *corev1.Service, pods []*corev1.Pod) *discoveryv1.EndpointSlice {
	name, protocol, port, ready := "http", corev1.ProtocolTCP, int32(8080), true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name, Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	for _, p := range pods {
		node := p.Spec.NodeName
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.Status.PodIPs[0].IP}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		})
	}
	return slice
}

// EgressService returns an EgressService for the Service of a group.
func EgressService(group string) *egressservicev1.EgressService {
	return &egressservicev1.EgressService{
		ObjectMeta: metav1.ObjectMeta{Namespace: group, Name: group},
		Spec: egressservicev1.EgressServiceSpec{
			SourceIPBy:   egressservicev1.SourceIPLoadBalancer,
			NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: labelServiceHost, Operator: metav1.LabelSelectorOpExists}}},
		},
	}
}

// ingress returns the load balancer address of the Service of an EgressService.
func ingress(i int) netip.Addr { return nth(ingresses, i) }

// EgressIP returns an EgressIP for the pods of a group, with the i-th addresses.
func (s Size) EgressIP(group string, i int) *egressipv1.EgressIP {
	e := &egressipv1.EgressIP{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		Spec:       egressipv1.EgressIPSpec{NamespaceSelector: chooses(group), PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": group}}},
	}
	for n := range s.Addresses {
		e.Spec.EgressIPs = append(e.Spec.EgressIPs, egressipv1.Address(nth(egressAddrs, i*s.Addresses+n).String()))
	}
	return e
}

// Policy returns a policy that routes the pods of a group through gateways.
func (s Size) Policy(group string, i int) *routev1.AdminPolicyBasedExternalRoute {
	p := &routev1.AdminPolicyBasedExternalRoute{
		ObjectMeta: metav1.ObjectMeta{Name: group},
		Spec:       routev1.AdminPolicyBasedExternalRouteSpec{From: routev1.ExternalNetworkSource{NamespaceSelector: chooses(group)}},
	}
	for n := range s.Hops {
		p.Spec.NextHops.Static = append(p.Spec.NextHops.Static, routev1.StaticHop{IP: nth(gateways, (i*s.Hops+n)%200).String()})
	}
	return p
}

func chooses(group string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{LabelGroup: group}}
}
