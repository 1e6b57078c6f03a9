// Package labtest creates the cluster of a test: the cluster is deleted when the test ends, and its
// logs are kept if the test failed.
//
// Callers: the end-to-end tests.
package labtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// Nodes are the nodes of every cluster; the first one runs the control plane.
var Nodes = []string{lab.ControlPlane, "ovn-worker", "ovn-worker2"}

// Start creates a cluster. If the test fails, the logs of its nodes are kept under the given name
// in the directory $E2E_LOGS, and the cluster is kept if $E2E_KEEP is set. If
// $E2E_CLUSTER names a cluster, that one is used, created if it does not exist, and kept.
func Start(t *testing.T, name string, o lab.Options) *lab.Lab {
	t.Helper()
	o.Log = t.Output()
	if kept := os.Getenv("E2E_CLUSTER"); kept != "" {
		o.Name, o.Keep = kept, true
	}
	l, err := lab.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has already ended here.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if t.Failed() {
			KeepLogs(ctx, t, l, name)
			if os.Getenv("E2E_KEEP") != "" {
				return
			}
		}
		if err := l.Close(ctx); err != nil {
			t.Errorf("remove the cluster: %v", err)
		}
	})
	return l
}

// Full reports whether every test runs in both gateway modes ($E2E_FULL). Otherwise, tests that
// take long run only in the mode in which they show more.
func Full() bool { return os.Getenv("E2E_FULL") != "" }

// In runs a test if the cluster is in the gateway mode that the test is for, and also in the other
// mode in a full run.
func In(t *testing.T, mode, cluster, name string, test func(*testing.T)) {
	if mode == cluster || Full() {
		t.Run(name, test)
	}
}

// KeepLogs saves the logs of the machines, to diagnose the failure.
func KeepLogs(ctx context.Context, t *testing.T, l *lab.Lab, name string) {
	dir := os.Getenv("E2E_LOGS")
	if dir == "" || l.Closed() {
		return
	}
	dir = filepath.Join(dir, name)
	if err := l.ExportLogs(ctx, dir, Nodes...); err != nil {
		t.Logf("keep logs: %v", err)
	}
	t.Logf("logs of the cluster are in %s", dir)
}

// Datapath fails the test if an ovs-vswitchd crashed, even if nothing else noticed.
func Datapath(t *testing.T, l *lab.Lab) {
	for _, node := range Nodes {
		said, err := l.DatapathErrors(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if said != "" {
			t.Errorf("ovs-vswitchd of %s crashed:\n%s", node, said)
		}
	}
}
