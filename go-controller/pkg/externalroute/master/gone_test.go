package master

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPodGoesWithItsGateways: a pod is deleted, and before its event is handled its namespace loses its
// gateways: the decision does not see the pod, and the event does not see gateways, but the rows are removed.
func TestPodGoesWithItsGateways(t *testing.T) {
	nb := fake()
	w := newWorld(t, nb, node(0), node(1), namespace("red"), pod("red", 0, 0), policy("p", anyGWs, hops("172.18.0.51")))
	c := w.start()
	w.reported("p")
	if n := routes(nb); n != 1 {
		t.Fatalf("%d routes, want 1:\n%s", n, nb.Dump())
	}
	// The informer removes deleted objects from its store before it sends events.
	if err := c.pods.Delete(pod("red", 0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := w.routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Delete(context.Background(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("all rows to be gone", func() bool { return nb.Dump() == "" })
}

// TestNodesBeingPlanned: a decision made while rows are planned according to the previous one triggers planning
// again.
func TestNodesBeingPlanned(t *testing.T) {
	c := newWorld(t, fake(), node(0)).start()
	c.mu.Lock()
	c.planning = map[string]bool{"n0": true}
	c.mu.Unlock()
	if got := c.nodesPlannedWith([]string{"red"}); len(got) != 1 || got[0] != "n0" {
		t.Errorf("got %v", got)
	}
	if got := c.nodesPlannedWith(nil); len(got) != 0 {
		t.Errorf("nothing changed, and got %v", got)
	}
}
