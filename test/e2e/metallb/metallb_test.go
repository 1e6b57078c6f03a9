package metallb

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// patience is how long the cluster may take to show what a step asked for.
const patience = 90 * time.Second

var (
	workers = []string{"ovn-worker", "ovn-worker2"}
	nodes   = append([]string{lab.ControlPlane}, workers...)
)

func TestSharedGateway(t *testing.T) { testCluster(t, "shared") }
func TestLocalGateway(t *testing.T)  { testCluster(t, "local") }

func testCluster(t *testing.T, mode string) {
	c := start(t, mode)
	t.Run("Example", c.example)
	if mode == "shared" { // the suite has it in both; what is different here is outside
		t.Run("Walkthrough", c.walkthrough)
	}
	t.Run("Datapath", c.datapath)
}

// cluster is a cluster with MetalLB.
type cluster struct{ *lab.Lab }

func start(t *testing.T, mode string) *cluster {
	l, err := lab.Start(t.Context(), lab.Options{Name: fmt.Sprintf("mlb-%s-%d", mode, os.Getpid()), GatewayMode: mode, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended here.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if dir := os.Getenv("E2E_LOGS"); t.Failed() && dir != "" {
			if err := l.ExportLogs(ctx, filepath.Join(dir, "metallb-"+mode), nodes...); err != nil {
				t.Logf("keep logs: %v", err)
			}
		}
		if err := l.Close(ctx); err != nil {
			t.Errorf("remove the cluster: %v", err)
		}
	})
	c := &cluster{l}
	began := time.Now()
	install := exec.CommandContext(t.Context(), "../../../contrib/metallb/install.sh", l.Kin.Name)
	install.Env = append(os.Environ(), "KIN="+l.Kin.Program)
	install.Stdout, install.Stderr = t.Output(), t.Output()
	if err := install.Run(); err != nil {
		t.Fatalf("install MetalLB: %v", err)
	}
	t.Logf("MetalLB was there after %s", time.Since(began).Round(time.Second))
	return c
}

// kubectl runs kubectl and returns what it printed.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := lab.Run(t.Context(), append(c.Kubectl(), args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies files of testdata.
func (c *cluster) apply(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		c.kubectl(t, "apply", "-f", filepath.Join("testdata", f))
	}
}

// until waits for a condition.
func until(t *testing.T, what string, condition func(context.Context) error) {
	t.Helper()
	if err := lab.Until(t.Context(), patience, what, condition); err != nil {
		t.Fatal(err)
	}
}

// datapath fails where an ovs-vswitchd crashed, even if nobody missed it.
func (c *cluster) datapath(t *testing.T) {
	for _, node := range nodes {
		said, err := c.DatapathErrors(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if said != "" {
			t.Errorf("ovs-vswitchd of %s crashed:\n%s", node, said)
		}
	}
}
