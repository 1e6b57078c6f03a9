package master

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// TestOutage: after an outage of the API server, Kubernetes has no reports of any node. Nodes
// that answer probes keep their addresses and get more; a node that does not is replaced.
func TestOutage(t *testing.T) {
	w := serving(t, "172.18.0.33")
	was := w.holder(prod, "172.18.0.33")
	for _, n := range []string{was, other(was), "ovn-control-plane"} {
		w.changeNode(n, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	}
	w.create(egress("later", []v1.Address{"172.18.0.44"}, func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels = map[string]string{"app": "db"} }))
	w.programmed("later")
	if is := w.holder(prod, "172.18.0.33"); is != was {
		t.Errorf("its address is on %q, want %s", is, was)
	}
	// The kubelet of the holder is the last one with a report.
	for _, n := range []string{"ovn-control-plane", other(was)} {
		w.changeNode(n, func(n *corev1.Node) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionTrue, metav1.Now()
		})
	}
	w.create(egress("last", []v1.Address{"172.18.0.45"}, func(e *v1.EgressIP) { e.Spec.PodSelector.MatchLabels = map[string]string{"app": "queue"} }))
	w.programmed("last")
	if is := w.holder(prod, "172.18.0.33"); is != was {
		t.Errorf("its address is on %q when kubelets come back, want %s", is, was)
	}
	w.freeze(was, true)
	w.health.Set(was, place.Dead)
	w.eventually("the next hop", func() bool { return w.hops(web, webV4) == hopOf[other(was)] })
	w.event("172.18.0.33 moves from node " + was + " to node " + other(was) + ": " + was + " unreachable")
}
