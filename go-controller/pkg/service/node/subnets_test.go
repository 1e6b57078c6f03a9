package node_test

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestNewSubnets: routes follow the node's subnets.
func TestNewSubnets(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	w.create(object("b", "203.0.113.2", corev1.ProtocolTCP, 30002))
	w.start()
	via := func(gateway string) func() bool {
		return func() bool {
			for _, hop := range w.routes.Objects() {
				if hop.Via != netip.MustParseAddr(gateway) {
					return false
				}
			}
			return len(w.routes.Objects()) == 1
		}
	}
	w.until("the route", via("10.244.1.1"))
	n, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Annotations[kube.AnnotationNodeSubnets] = strings.Replace(n.Annotations[kube.AnnotationNodeSubnets], "10.244.1.0/24", "10.244.7.0/24", 1)
	if _, err := w.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the route by the new subnet", via("10.244.7.1"))
}

// TestNewVLAN: flows follow the node's VLAN, even if the node's annotation changes after they were
// written.
func TestNewVLAN(t *testing.T) {
	w := newWorld(t, topology.GatewayShared)
	w.create(object("a", "10.96.0.1", corev1.ProtocolTCP, 30001))
	w.serve("a", "10.244.1.3@n1")
	w.start()
	if flows := w.flows.Dump(); flows == "" || strings.Contains(flows, "dl_vlan") {
		t.Fatalf("flows at first:\n%s", flows)
	}
	n, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Annotations[kube.AnnotationL3Gateway] = strings.Replace(n.Annotations[kube.AnnotationL3Gateway], `"vlan-id":"0"`, `"vlan-id":"30"`, 1)
	if _, err := w.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the flows to have the new VLAN", func() bool { return strings.Contains(w.flows.Dump(), "dl_vlan=30") })
}
