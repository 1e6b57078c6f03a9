package suite

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// names has pods find the API server: at the address from the environment, as clients in pods do,
// and by its DNS names, asking the name server at both of its addresses. There is a name for each
// family.
func (s *suite) names(t *testing.T) {
	nameserver, err := s.Kube.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(nameserver.Spec.ClusterIPs); got != 2 {
		t.Fatalf("the name server has the addresses %v", nameserver.Spec.ClusterIPs)
	}
	kubernetes, err := s.Kube.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := kubernetes.Spec.ClusterIP, s.kubernetesByIPv6(t).Spec.ClusterIP
	for _, pod := range []string{"a", "b"} {
		t.Run("environment/"+pod, func(t *testing.T) { s.asksAPI(t, pod, v4) })
		for _, ns := range nameserver.Spec.ClusterIPs {
			at := netip.AddrPortFrom(netip.MustParseAddr(ns), 53).String()
			t.Run(fmt.Sprintf("v4/%s/%s", pod, ns), func(t *testing.T) {
				s.asksAPI(t, pod, v4, "-nameserver", at, "-host", "kubernetes.default.svc")
			})
			t.Run(fmt.Sprintf("v6/%s/%s", pod, ns), func(t *testing.T) {
				s.asksAPI(t, pod, v6, "-nameserver", at, "-host", "kubernetes6.default.svc", "-as", "kubernetes.default.svc")
			})
		}
	}
}

// asksAPI has a pod query the API server, and checks the address that answered.
func (s *suite) asksAPI(t *testing.T, pod, want string, args ...string) {
	t.Helper()
	address := netip.AddrPortFrom(netip.MustParseAddr(want), 443).String()
	err := lab.Until(t.Context(), 30*time.Second, "the API server to answer", func(ctx context.Context) error {
		got, err := s.Exec(ctx, pod, append([]string{"/probe", "api"}, args...)...)
		if err == nil && got != address {
			return fmt.Errorf("%s answered, want %s", got, address)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// kubernetesByIPv6 creates a Service for the API server that has an IPv6 address: the one that
// Kubernetes creates has only one address, whatever the cluster has.
func (s *suite) kubernetesByIPv6(t *testing.T) *corev1.Service {
	t.Helper()
	const name, port = "kubernetes6", 6443
	server, err := s.nodeAddress(t.Context(), lab.ControlPlane, false)
	if err != nil {
		t.Fatal(err)
	}
	services, slices := s.Kube.CoreV1().Services("default"), s.Kube.DiscoveryV1().EndpointSlices("default")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := slices.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	made, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol}, Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	portName, portNumber := "https", int32(port)
	_, err = slices.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv6,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{server.String()}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &portNumber}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}
