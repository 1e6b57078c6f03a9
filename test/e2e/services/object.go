package services

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// servicePort is the port of every Service here; the servers listen on another one.
const servicePort = 80

// external are the addresses that the tests assign as the load-balancer provider.
var external = []netip.Addr{netip.MustParseAddr("5.5.5.5"), netip.MustParseAddr("fd55::5")}

// service is a Service that exists in the cluster.
type service struct {
	*corev1.Service
}

func (s service) clusterIP(is4 bool) netip.Addr {
	var all []netip.Addr
	for _, text := range s.Spec.ClusterIPs {
		all = append(all, netip.MustParseAddr(text))
	}
	return lab.OfFamily(all, is4)
}

func (s service) nodePort() uint16 { return uint16(s.Spec.Ports[0].NodePort) }

// object returns a Service with the server pods as endpoints.
func object(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: lab.Namespace},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeNodePort,
			Selector:       map[string]string{"role": "server"},
			IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Port: servicePort, TargetPort: intstr.FromInt32(lab.ServePort), Protocol: corev1.ProtocolTCP},
				{Name: "udp", Port: servicePort, TargetPort: intstr.FromInt32(lab.ServePort), Protocol: corev1.ProtocolUDP},
			},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// make creates a Service with the server pods as endpoints and deletes it when the test ends.
func (w *world) make(t *testing.T, name string, change ...func(*corev1.Service)) service {
	t.Helper()
	s := object(name, change...)
	api := w.Kube.CoreV1().Services(lab.Namespace)
	made, err := api.Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete Service: %v", err)
		}
	})
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		made = w.give(t, made)
	}
	return service{made}
}

// give assigns addresses as the load-balancer provider.
func (w *world) give(t *testing.T, s *corev1.Service) *corev1.Service {
	t.Helper()
	s = s.DeepCopy()
	for _, a := range external {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	s, err := w.Kube.CoreV1().Services(lab.Namespace).UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func loadBalancer(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }

func externalLocal(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalLocal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

func nobody(s *corev1.Service) { s.Spec.Selector = map[string]string{"role": "nobody"} }

// onHosts creates a Service whose endpoints are the servers on the two workers themselves, not in
// pods.
func (w *world) onHosts(t *testing.T, name string, change ...func(*corev1.Service)) service {
	t.Helper()
	change = append(change, func(s *corev1.Service) { s.Spec.Selector = nil })
	s := w.make(t, name, change...)
	w.slices(t, s, "hosts", func(is4 bool) []discoveryv1.Endpoint {
		return []discoveryv1.Endpoint{
			endpoint(worker1, w.address(worker1, is4), ready), endpoint(worker2, w.address(worker2, is4), ready),
		}
	})
	return s
}

var (
	ready   = discoveryv1.EndpointConditions{Ready: new(true)}
	unready = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false)}
	leaving = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
)

func endpoint(node string, a netip.Addr, c discoveryv1.EndpointConditions) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: &node, Conditions: c}
}

// slices writes EndpointSlices for a Service, one per family, replacing those with the same name.
// They are deleted with the Service.
func (w *world) slices(t *testing.T, s service, name string, endpoints func(is4 bool) []discoveryv1.Endpoint) {
	t.Helper()
	api := w.Kube.DiscoveryV1().EndpointSlices(lab.Namespace)
	for _, is4 := range []bool{true, false} {
		kind := discoveryv1.AddressTypeIPv6
		if is4 {
			kind = discoveryv1.AddressTypeIPv4
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%s-%t", s.Name, name, is4), Namespace: lab.Namespace,
				Labels:          map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: "e2e"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID}},
			},
			AddressType: kind,
			Ports: []discoveryv1.EndpointPort{
				{Name: new("tcp"), Port: new(int32(lab.ServePort)), Protocol: new(corev1.ProtocolTCP)},
				{Name: new("udp"), Port: new(int32(lab.ServePort)), Protocol: new(corev1.ProtocolUDP)},
			},
			Endpoints: endpoints(is4),
		}
		_, err := api.Update(t.Context(), slice, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = api.Create(t.Context(), slice, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
