package egressservice

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
)

// TestNetworked: the host needs the network, and of all nodes those with pods.
func TestNetworked(t *testing.T) {
	endpoints := []Endpoint{{Addr: netip.MustParseAddr("10.244.1.6"), Node: "b"}}
	for _, c := range []struct {
		host, node string
		want       bool
	}{{"a", "a", true}, {v1.HostAll, "b", true}, {v1.HostAll, "c", false}} {
		if got := Networked(Service{Host: c.host, Endpoints: endpoints}, c.node); got != c.want {
			t.Errorf("host %s, node %s: %v", c.host, c.node, got)
		}
	}
}

// TestLocalPorts: replies that a node keeps to itself are known by its virtual address
// and the node port, of each protocol and family.
func TestLocalPorts(t *testing.T) {
	svc := &corev1.Service{}
	svc.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080}, {Port: 53, NodePort: 30053, Protocol: corev1.ProtocolUDP}, {Port: 99}}
	masquerade := []netip.Prefix{netip.MustParsePrefix("169.254.169.0/29"), netip.MustParsePrefix("fd69::/125")}
	if got := localPorts(svc, masquerade); got != nil {
		t.Errorf("without externalTrafficPolicy Local: %v", got)
	}
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	const want = "[{169.254.169.3 tcp 30080} {169.254.169.3 udp 30053} {fd69::3 tcp 30080} {fd69::3 udp 30053}]"
	if got := fmt.Sprint(localPorts(svc, masquerade)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
