package services

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

const (
	worker1 = "ovn-worker"
	worker2 = "ovn-worker2"
)

var nodes = labtest.Nodes

// Test runs all tests of Services on a cluster in the given gateway mode, on whose nodes servers run.
func Test(t *testing.T, l *lab.Lab, mode string) {
	w := start(t, l, mode)
	t.Run("Paths", w.paths)
	w.shared(t, "Kinds", w.kinds)
	w.shared(t, "HostPort", w.hostPort)
	w.shared(t, "NewRange", w.newRange)
	w.shared(t, "Affinity", w.affinity)
	t.Run("SourceRanges", w.sourceRanges)
	w.shared(t, "HealthPort", w.healthPort)
	w.shared(t, "AddressesOfOthers", w.addressesOfOthers)
	w.shared(t, "SharedAddress", w.sharedAddress)
	w.shared(t, "HealthPortTaken", w.healthPortTaken)
	w.shared(t, "ProvidersAddresses", w.providersAddresses)
	t.Run("UDP", w.udp)
	t.Run("Fragments", w.fragments)
	t.Run("PathMTU", w.pathMTU)
	w.shared(t, "Endpoints", w.endpoints)
	w.shared(t, "Restart", w.restart)
}

// shared runs a test in shared gateway mode, and in both modes in a full run. What these tests show
// does not depend on the mode, or the other tests show it in both.
func (w *world) shared(t *testing.T, name string, test func(*testing.T)) {
	labtest.In(t, "shared", w.mode, name, test)
}

// world is what the tests of a cluster share: two server pods on two of the three nodes, a client
// pod on every node, and servers on the nodes themselves.
type world struct {
	*lab.Lab
	mode     string
	pods     map[string]lab.Pod
	internal map[string][]netip.Addr // of nodes
}

func start(t *testing.T, l *lab.Lab, mode string) *world {
	w := &world{Lab: l, mode: mode, pods: map[string]lab.Pod{}, internal: map[string][]netip.Addr{}}
	var err error
	for _, node := range nodes {
		if w.internal[node], err = l.NodeAddresses(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	starting, ctx := errgroup.WithContext(t.Context())
	var mu sync.Mutex
	for name, node := range map[string]string{"s1": worker1, "s2": worker2, "c0": lab.ControlPlane, "c1": worker1, "c2": worker2} {
		labels := map[string]string{"role": "client"}
		if name[0] == 's' {
			labels = map[string]string{"role": "server"}
		}
		w.cleanPod(t, name)
		starting.Go(func() error {
			pod, err := l.RunServer(ctx, name, node, labels)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			w.pods[name] = pod
			return nil
		})
	}
	if err := starting.Wait(); err != nil {
		t.Fatal(err)
	}
	return w
}

// cleanPod deletes a pod when the test ends.
func (w *world) cleanPod(t *testing.T, name string) {
	t.Cleanup(func() {
		if err := w.DeletePod(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
}

// address returns the address of a node.
func (w *world) address(node string, is4 bool) netip.Addr { return lab.OfFamily(w.internal[node], is4) }
