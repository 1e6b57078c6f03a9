package services

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	worker1 = "ovn-worker"
	worker2 = "ovn-worker2"
)

var nodes = []string{lab.ControlPlane, worker1, worker2}

func TestSharedGateway(t *testing.T) { testCluster(t, "shared") }
func TestLocalGateway(t *testing.T)  { testCluster(t, "local") }

func testCluster(t *testing.T, mode string) {
	w := start(t, mode)
	t.Run("Paths", w.paths)
	t.Run("Kinds", w.kinds)
	t.Run("HostPort", w.hostPort)
	t.Run("NewRange", w.newRange)
	t.Run("Affinity", w.affinity)
	t.Run("SourceRanges", w.sourceRanges)
	t.Run("HealthPort", w.healthPort)
	t.Run("AddressesOfOthers", w.addressesOfOthers)
	t.Run("SharedAddress", w.sharedAddress)
	t.Run("HealthPortTaken", w.healthPortTaken)
	t.Run("ProvidersAddresses", w.providersAddresses)
	t.Run("UDP", w.udp)
	t.Run("Fragments", w.fragments)
	t.Run("PathMTU", w.pathMTU)
	t.Run("Endpoints", w.endpoints)
	t.Run("Restart", w.restart)
	t.Run("Datapath", w.datapath)
}

// world is what the tests of one cluster share: two server pods, of which one node
// has none, a client pod on every node, and servers on the nodes themselves.
type world struct {
	*lab.Lab
	mode     string
	pods     map[string]lab.Pod
	internal map[string][]netip.Addr // of nodes
}

func start(t *testing.T, mode string) *world {
	l, err := lab.Start(t.Context(), lab.Options{Name: fmt.Sprintf("svc-%s-%d", mode, os.Getpid()), GatewayMode: mode, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Lab: l, mode: mode, pods: map[string]lab.Pod{}, internal: map[string][]netip.Addr{}}
	t.Cleanup(func() {
		// The test's own context has ended here.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if dir := os.Getenv("E2E_LOGS"); t.Failed() && dir != "" {
			if err := l.ExportLogs(ctx, filepath.Join(dir, "svc-"+mode), nodes...); err != nil {
				t.Logf("keep logs: %v", err)
			}
		}
		if os.Getenv("E2E_KEEP") != "" && t.Failed() {
			return
		}
		if err := l.Close(ctx); err != nil {
			t.Errorf("remove the cluster: %v", err)
		}
	})
	for _, node := range nodes {
		if err := l.Serve(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		if w.internal[node], err = l.NodeAddresses(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	for name, node := range map[string]string{"s1": worker1, "s2": worker2, "c0": lab.ControlPlane, "c1": worker1, "c2": worker2} {
		labels := map[string]string{"role": "client"}
		if name[0] == 's' {
			labels = map[string]string{"role": "server"}
		}
		if w.pods[name], err = l.RunServer(t.Context(), name, node, labels); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// address returns the address of a node.
func (w *world) address(node string, is4 bool) netip.Addr { return ofFamily(w.internal[node], is4) }

func ofFamily(addrs []netip.Addr, is4 bool) netip.Addr {
	for _, a := range addrs {
		if a.Is4() == is4 {
			return a
		}
	}
	return netip.Addr{}
}

// datapath fails where an ovs-vswitchd crashed, even if nobody missed it.
func (w *world) datapath(t *testing.T) {
	for _, node := range nodes {
		said, err := w.DatapathErrors(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if said != "" {
			t.Errorf("ovs-vswitchd of %s crashed:\n%s", node, said)
		}
	}
}
