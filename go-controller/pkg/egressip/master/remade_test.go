package master

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// TestMadeAnew: an EgressIP that was deleted and created again is placed like any other new one, whether placement has seen that it
// was gone or not.
func TestMadeAnew(t *testing.T) {
	w := newWorld(t, egress(prod, []v1.Address{"172.18.0.33"}))
	assignable := func(node string, is bool) {
		w.changeNode(node, func(n *corev1.Node) {
			if delete(n.Labels, kube.LabelEgressAssignable); is {
				n.Labels[kube.LabelEgressAssignable] = ""
			}
		})
	}
	assignable("ovn-worker", false)
	w.start()
	if first := w.programmed(prod); first != "ovn-worker2" {
		t.Fatalf("the address is with %s", first)
	}
	assignable("ovn-worker", true)
	c := w.master
	w.eventually("the label to be known", func() bool {
		n, err := c.deps.Nodes.Lister().Get("ovn-worker")
		return err == nil && c.candidate(n).EgressAssignable
	})
	w.stop() // from here on, placement runs when the test says so
	placed := func() map[string]string {
		if err := c.place(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		d, _ := c.decisions.of(prod)
		nodes := map[string]string{}
		for a, node := range d.Nodes() {
			nodes[a.String()] = node
		}
		return nodes
	}
	remake := func(seen bool) map[string]string {
		store := c.deps.EgressIPs.Informer().GetStore()
		old, err := c.deps.EgressIPs.Lister().Get(prod)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(old); err != nil {
			t.Fatal(err)
		}
		c.decisions.observe(old, nil)
		if seen {
			placed()
		}
		next := egress(prod, []v1.Address{"172.18.0.33"})
		next.UID = "another-" + old.UID
		if err := store.Add(next); err != nil {
			t.Fatal(err)
		}
		c.decisions.observe(nil, next)
		return placed()
	}
	before := placed()
	unseen, seen := remake(false), remake(true)
	if !maps.Equal(unseen, seen) || maps.Equal(unseen, before) {
		t.Errorf("it had %v; made anew it has %v, or %v if placement has seen that it was gone", before, unseen, seen)
	}
}
