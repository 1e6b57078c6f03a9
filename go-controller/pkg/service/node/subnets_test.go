package node_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
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

// TestRecreatedNode: a Node object that is deleted and created again has no annotations at first. Nothing has changed on
// the host, so all that Services have there stays, and still follows them.
func TestRecreatedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, topology.GatewayShared)
		w.create(object("a", "10.96.0.1", corev1.ProtocolTCP, 30001))
		w.serve("a", "10.244.1.3@n1")
		w.create(object("b", "203.0.113.2", corev1.ProtocolTCP, 30002))
		w.serve("b", "172.18.0.2@n1")
		w.create(object("c", "10.96.0.3", corev1.ProtocolUDP, 30003))
		w.serve("c", "10.244.1.3@n1")
		w.create(object("d", "10.96.0.4", corev1.ProtocolTCP, 30004))
		w.serve("d", "10.244.1.4@n1")
		w.start()
		fakeapi.Settle()
		writes := func() int { return w.chains.Writes() + w.routes.Writes() + w.flows.Writes() }
		unchanged := func(what string, do func()) {
			t.Helper()
			before := writes()
			do()
			fakeapi.Settle()
			if n := writes() - before; n != 0 {
				t.Errorf("%s: %d writes; chains are\n%s\nflows are\n%s", what, n, w.chains.Dump(topology.IPv4), w.flows.Dump())
			}
		}
		served := func(what, port string, want bool) {
			t.Helper()
			if fakeapi.Settle(); strings.Contains(w.chains.Dump(topology.IPv4), "--dport "+port+" ") != want {
				t.Errorf("%s: a rule for port %s: %v", what, port, !want)
			}
		}
		nodes, services := w.kube.CoreV1().Nodes(), w.kube.CoreV1().Services("ns")
		n, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		drop := func(name, address string) {
			t.Helper()
			if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			fakeapi.Settle()
			if strings.Contains(w.chains.Dump(topology.IPv4)+w.flows.Dump(), address) {
				t.Errorf("something of deleted Service %s is left:\n%s\n%s", name, w.chains.Dump(topology.IPv4), w.flows.Dump())
			}
		}

		unchanged("deleted", func() { w.deleteNode() })
		drop("c", "5.5.5.3")
		annotations := n.Annotations
		n.UID, n.ResourceVersion, n.Annotations = "anew", "", nil
		unchanged("created", func() { w.createNode(n) })
		drop("d", "5.5.5.4")
		w.create(object("e", "10.96.0.5", corev1.ProtocolTCP, 30005))
		served("created meanwhile", "30005", true)
		n.Annotations = map[string]string{kube.AnnotationL3Gateway: annotations[kube.AnnotationL3Gateway]}
		unchanged("with a gateway", func() { w.updateNode(n) })
		n.Annotations = annotations
		unchanged("with all annotations", func() { w.updateNode(n) })
		served("at the end", "30001", true)

		// A new object that has its annotations at once.
		w.deleteNode()
		n.UID = "once more"
		n.Annotations[kube.AnnotationL3Gateway] = strings.Replace(n.Annotations[kube.AnnotationL3Gateway], `"vlan-id":"0"`, `"vlan-id":"30"`, 1)
		w.createNode(n)
		if fakeapi.Settle(); !strings.Contains(w.flows.Dump(), "dl_vlan=30") {
			t.Errorf("flows without the new VLAN:\n%s", w.flows.Dump())
		}
		w.stop()
	})
}

func (w *world) deleteNode() {
	w.t.Helper()
	if err := w.kube.CoreV1().Nodes().Delete(w.t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) createNode(n *corev1.Node) {
	w.t.Helper()
	if _, err := w.kube.CoreV1().Nodes().Create(w.t.Context(), n.DeepCopy(), metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) updateNode(n *corev1.Node) {
	w.t.Helper()
	if _, err := w.kube.CoreV1().Nodes().Update(w.t.Context(), n.DeepCopy(), metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}
