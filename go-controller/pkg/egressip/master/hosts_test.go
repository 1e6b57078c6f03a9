package master

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestHostOfKubernetes: an address of a node that has not published its addresses yet, or of an API
// server, is not an egress address; a held address stays, and the conflict is reported.
func TestHostOfKubernetes(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, egress(prod, []v1.Address{"172.18.0.33"}))
	joins := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joins"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "joins"}, {Type: corev1.NodeInternalIP, Address: "172.18.0.33"},
	}}}
	if _, err := w.kube.CoreV1().Nodes().Create(ctx, joins, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.eventually("the refusal", func() bool {
		c := meta.FindStatusCondition(w.get(prod).Status.Conditions, v1.ConditionAssigned)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == string(egressip.NodeAddress)
	})
	w.event("172.18.0.33 is an address of node joins")
	joins.Status.Addresses[1].Address = "172.18.0.99"
	if _, err := w.kube.CoreV1().Nodes().UpdateStatus(ctx, joins, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.programmed(prod)
	servers := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"172.18.0.33"}}}}
	slices := w.kube.DiscoveryV1().EndpointSlices("default")
	if _, err := slices.Create(ctx, servers, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the conflict", func() bool { return w.is(prod, v1.ConditionConflict) })
	w.event("172.18.0.33 is an address of the API server")
	if w.holder(prod, "172.18.0.33") == "" || !w.is(prod, v1.ConditionAssigned) {
		t.Error("the address is held by nobody any more")
	}
	if err := slices.Delete(ctx, "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the conflict to end", func() bool { return !w.is(prod, v1.ConditionConflict) })
}

// TestHosts: for a node that has published its addresses, only these count, since a cloud lists
// egress addresses among those of the machine that holds them.
func TestHosts(t *testing.T) {
	internal := func(name string, texts ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, text := range texts {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: text})
		}
		return n
	}
	known := func(n *corev1.Node) topology.Node {
		if n.Name == "said" {
			return topology.Node{Primary: prefixes("172.18.0.3/16")}
		}
		return topology.Node{}
	}
	got := Hosts([]*corev1.Node{internal("said", "172.18.0.3", "172.18.0.33"), internal("b", "::ffff:172.18.0.9", "fc00::9", "x"), internal("a", "172.18.0.9")},
		known, addrs("172.18.0.9", "203.0.113.1"))
	if len(got) != 3 || got[addrs("172.18.0.9")[0]] != "a" || got[addrs("fc00::9")[0]] != "b" {
		t.Errorf("%v", got)
	}
	if name, ok := got[addrs("203.0.113.1")[0]]; !ok || name != "" {
		t.Errorf("%v", got)
	}
}
