package master

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
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

// TestRouted: a pod's address is published until its routes are gone, however long that takes.
func TestRouted(t *testing.T) {
	writer := fake()
	var broken atomic.Bool
	tried := make(chan struct{}, 100)
	writer.FailWith(func(o nb.Owner) error {
		if !broken.Load() || o != externalroute.Owner("n0") {
			return nil
		}
		tried <- struct{}{}
		return errors.New("no connection")
	})
	w := newWorld(t, writer, node(0), namespace("red"), pod("red", 0, 0), pod("blue", 0, 1), policy("p", anyGWs, hops("172.18.0.51")))
	w.start()
	w.reported("p")
	gone, other := netip.MustParseAddr("10.244.0.3"), netip.MustParseAddr("10.244.0.4")
	if !w.routed.Has(gone) || w.routed.Has(other) {
		t.Errorf("published: the pod with gateways %v, another one %v", w.routed.Has(gone), w.routed.Has(other))
	}
	broken.Store(true)
	w.setPortless("red/p0-0")
	if err := w.kube.CoreV1().Pods("red").Delete(t.Context(), "p0-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		eventually.Receive(t, "an attempt", tried)
	}
	if !w.routed.Has(gone) {
		t.Error("not published any more, with its route in the database")
	}
	broken.Store(false)
	w.eventually("the address to be free", func() bool { return !w.routed.Has(gone) })
	if n := routes(writer); n != 0 {
		t.Errorf("%d routes are left:\n%s", n, writer.Dump())
	}
}
