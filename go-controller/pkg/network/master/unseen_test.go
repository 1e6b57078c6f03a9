package master

import (
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestUndoneUnseen: the master's assignment is undone while no watch is open, so that the
// next list shows the node as it was last seen.
func TestUndoneUnseen(t *testing.T) {
	c := newCluster(t)
	c.faults = fakeapi.NewFaults(rand.New(rand.NewPCG(1, 1)))
	c.faults.Inject(c.cs)
	c.addNode("n1", 1)
	c.faults.UndoUnseen(c.cs, "nodes", kube.AnnotationNodeSubnets)
	c.start(config("10.244.0.0/16"))
	c.wait("the assignment", func() bool { return c.annotation("n1", kube.AnnotationNodeSubnets) != "" })
}

// TestAssignedOnceUntilSeen: the cluster's key is reconciled again before the informer shows the
// assignment, and once more after it has shown that somebody removed it.
func TestAssignedOnceUntilSeen(t *testing.T) {
	c := newCluster(t)
	c.addNode("n1", 1)
	nodes := kube.NewInformers(c.cs).Core().V1().Nodes()
	show := func() {
		n := c.nodes()[0]
		if err := nodes.Informer().GetIndexer().Add(&n); err != nil {
			t.Fatal(err)
		}
	}
	ctl, err := New(Deps{
		Client: c.cs, Nodes: nodes, Written: nodes, Decide: func(types.UID, map[string]*string) {}, Writer: c.nb, Recorder: c.events,
		Config: config("10.244.0.0/16"),
	})
	if err != nil {
		t.Fatal(err)
	}
	reconcile := func(want int) {
		t.Helper()
		for range 3 {
			if err := ctl.reconcileCluster(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.patches("n1"); got != want {
			t.Errorf("patched %d times, want %d", got, want)
		}
	}
	show()
	before := c.nodes()[0]
	reconcile(1)
	show()
	reconcile(1)
	before.ResourceVersion = c.nodes()[0].ResourceVersion
	if _, err := c.cs.CoreV1().Nodes().Update(t.Context(), &before, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	show()
	reconcile(2)
}

// TestRecreatedUnseen: a node is deleted and created again while the informer still shows the old one, whose network is
// complete. The new one has none yet, and must not be reported as available.
func TestRecreatedUnseen(t *testing.T) {
	c := newCluster(t)
	c.addNode("n1", 1)
	nodes := kube.NewInformers(c.cs).Core().V1().Nodes()
	show := func() {
		n := c.nodes()[0]
		if err := nodes.Informer().GetIndexer().Add(&n); err != nil {
			t.Fatal(err)
		}
	}
	ctl, err := New(Deps{
		Client: c.cs, Nodes: nodes, Written: nodes, Decide: func(types.UID, map[string]*string) {}, Writer: c.nb, Recorder: c.events,
		Config: config("10.244.0.0/16"), Refusal: func(string, ...string) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	show()
	if err := ctl.reconcileCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	show()
	c.deleteNode("n1")
	c.addNode("n1", 1, func(n *corev1.Node) { n.Annotations = nil })
	if err := ctl.reconcileNode(t.Context(), "n1"); err == nil {
		t.Error("the new node was written for the old one")
	}
	if got := c.status("n1"); got != "[] []  " {
		t.Errorf("before anything is assigned to the new node it is %s", got)
	}
}
