package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ovnkube/ovnkube/go-controller/pkg/cni"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ids returns the external_ids of a port without those that ovn-controller adds.
func (l *lab) ids(port string) string {
	text, err := l.vs.Try("ovs-vsctl", "get", "interface", port, "external_ids")
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(text, `ovn-installed="true", `, "")
}

// bridge creates br-int, as the node's gateway does.
func (l *lab) bridge() {
	l.t.Helper()
	l.vs.Run("ovs-vsctl", "--may-exist", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
}

// TestLostPorts: the port of a running pod is restored, however it was deleted; that of a
// detached pod is not.
func TestLostPorts(t *testing.T) {
	for what, lose := range map[string]func(l *lab, port string){
		"the port":     func(l *lab, port string) { l.vs.Run("ovs-vsctl", "del-port", port) },
		"the bridge":   func(l *lab, _ string) { l.vs.Run("ovs-vsctl", "del-br", "br-int") },
		"the database": func(l *lab, _ string) { l.vs.LoseDatabase() },
	} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t)
			l.pod("web", "u1", podNetwork)
			l.pod("gone", "u2", podNetwork)
			l.sandbox("sb1")
			l.sandbox("sb2")
			l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
			l.mustHandle(l.request(cni.CommandAdd, "sb2", "gone", "u2"))
			l.mustHandle(l.request(cni.CommandDel, "sb2", "gone", "u2"))
			port := cni.HostLink("sb1", "eth0")
			before := l.ids(port)
			if !strings.Contains(before, "ns_web") {
				t.Fatalf("external_ids are %s", before)
			}
			if recorded, err := l.server.recorded(); err != nil || len(recorded) != 1 {
				t.Errorf("recorded are %v, %v", recorded, err)
			}
			lose(l, port)
			l.bridge()
			// At first the server may not have noticed the loss yet.
			eventually.Succeeds(t, "the port to be restored", func() error {
				if err := l.server.restore(t.Context()); err != nil {
					return err
				}
				if now := l.ids(port); now != before {
					return fmt.Errorf("external_ids are %s", now)
				}
				return nil
			})
			if got := l.ports(); got != port {
				t.Errorf("br-int has %q, not only %s", got, port)
			}
		})
	}
}

// TestLostPortIsNoticed: a running server restores a lost port.
func TestLostPortIsNoticed(t *testing.T) {
	l := newLab(t)
	l.pod("web", "u1", podNetwork)
	l.sandbox("sb1")
	l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
	port := cni.HostLink("sb1", "eth0")
	before := l.ids(port)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Bound)
	defer cancel()
	ended := make(chan error, 1)
	go func() { // the server is in the test's network namespace, and so is Open vSwitch
		defer cancel()
		for _, lose := range []string{"--if-exists del-port " + port, "del-br br-int -- add-br br-int -- set bridge br-int datapath_type=netdev"} {
			_, err := l.vs.Try("ovs-vsctl", strings.Fields(lose)...)
			if err == nil {
				err = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) { return l.ids(port) == before, nil })
			}
			if err != nil {
				ended <- fmt.Errorf("after %s: %w", lose, err)
				return
			}
		}
		ended <- nil
	}()
	l.server.keepRestoring(ctx, l.server.lost)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPortIsRecorded: ports created by an earlier version are recorded when the server
// collects, and the record is removed with the sandbox.
func TestPortIsRecorded(t *testing.T) {
	l := newLab(t)
	l.pod("web", "u1", podNetwork)
	l.sandbox("sb1")
	l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
	port := cni.HostLink("sb1", "eth0")
	dir := filepath.Join(filepath.Dir(l.server.Socket), "ports")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	collect := func(want ...string) {
		t.Helper()
		if err := l.server.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		recorded, err := l.server.recorded()
		if err != nil || len(recorded) != len(want) {
			t.Fatalf("recorded are %v, %v", recorded, err)
		}
	}
	collect(port)
	recorded, _ := l.server.readRecord(port)
	if got := recorded.ExternalIDs; got[ovs.IfaceID] != topology.PodPort("ns", "web") || got[ovs.Installed] != "" {
		t.Errorf("recorded is %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "torn.json"), []byte(`{"sandb`), 0o600); err != nil {
		t.Fatal(err)
	}
	collect(port)
	l.vs.Run("ovs-vsctl", "del-port", port)
	l.crash("sb1")
	eventually.True(t, "the link to go", func() bool {
		_, err := l.ns.Try("ip", "link", "show", port)
		return err != nil
	})
	if err := l.server.restore(t.Context()); err != nil {
		t.Error(err)
	}
	if got := l.ports(); got != "" {
		t.Errorf("the port of a sandbox that ended was restored: %s", got)
	}
	collect()
}

// TestEarlierSandboxIsNotRestored: a port that is lost while a later sandbox of its pod is attached is not restored beside
// the port of that one: ovn-controller could not tell which one to use.
func TestEarlierSandboxIsNotRestored(t *testing.T) {
	l := newLab(t)
	l.pod("web", "u1", podNetwork)
	l.sandbox("sb1")
	l.sandbox("sb2")
	l.mustHandle(l.request(cni.CommandAdd, "sb1", "web", "u1"))
	earlier := l.server.mustOurs(t)
	l.vs.Run("ovs-vsctl", "del-port", cni.HostLink("sb1", "eth0"))
	eventually.True(t, "the loss to be seen", func() bool {
		ports, err := l.db.Ports(t.Context(), topology.IntegrationBridge)
		return err == nil && len(ports) == 0
	})
	l.mustHandle(l.request(cni.CommandAdd, "sb2", "web", "u1"))
	if err := l.server.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	later := cni.HostLink("sb2", "eth0")
	if got := l.ports(); got != later {
		t.Errorf("br-int has %q, not only %s", got, later)
	}
	// What is collected may have been read before the later sandbox was attached.
	for _, p := range earlier {
		if err := l.server.ensureRecord(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if recorded, err := l.server.recorded(); err != nil || len(recorded) != 1 || recorded[0].Name != later {
		t.Errorf("recorded are %v, %v", recorded, err)
	}
}

// mustOurs returns the ports that ADD created.
func (s *Server) mustOurs(t *testing.T) []ovs.Port {
	t.Helper()
	ours, err := s.ours(t.Context())
	if err != nil || len(ours) == 0 {
		t.Fatalf("%v, %v", ours, err)
	}
	return ours
}
