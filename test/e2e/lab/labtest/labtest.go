// Package labtest makes the cluster of a test: it is deleted when the test ends, and
// its logs are kept when the test failed.
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

// Nodes are those of every cluster; the first one runs the control plane.
var Nodes = []string{lab.ControlPlane, "ovn-worker", "ovn-worker2"}

// Start makes a cluster. Where the test fails the logs of its nodes are kept in the
// directory $E2E_LOGS under a name, and the cluster stays where $E2E_KEEP is set.
func Start(t *testing.T, name string, o lab.Options) *lab.Lab {
	t.Helper()
	o.Log = t.Output()
	l, err := lab.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended here.
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

// Full reports whether every test runs in both gateway modes ($E2E_FULL). Otherwise those
// that take long run in the mode in which they show most.
func Full() bool { return os.Getenv("E2E_FULL") != "" }

// In runs a test on a cluster of a gateway mode where that is the mode it is for, and in
// the other one as well where the run is a full one.
func In(t *testing.T, mode, cluster, name string, test func(*testing.T)) {
	if mode == cluster || Full() {
		t.Run(name, test)
	}
}

// KeepLogs saves what the machines wrote, for whoever looks at the failure.
func KeepLogs(ctx context.Context, t *testing.T, l *lab.Lab, name string) {
	dir := os.Getenv("E2E_LOGS")
	if dir == "" || l.Closed() {
		return
	}
	dir = filepath.Join(dir, name)
	if err := l.ExportLogs(ctx, dir, Nodes...); err != nil {
		t.Logf("keep logs: %v", err)
		return
	}
	t.Logf("logs of the cluster are in %s", dir)
}

// Datapath fails where an ovs-vswitchd crashed, even if nobody missed it.
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
