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
	"github.com/ovnkube/ovnkube/test/e2e/lab/labtest"
)

// patience is how long the cluster may take to show what a step asked for.
const patience = 90 * time.Second

var nodes = labtest.Nodes

// TestGateway has a cluster for each gateway mode in a full run, and otherwise one: what differs
// from other tests is outside the nodes.
func TestGateway(t *testing.T) {
	for _, mode := range []string{"shared", "local"} {
		labtest.In(t, "shared", mode, mode, func(t *testing.T) { testCluster(t, mode) })
	}
}

func testCluster(t *testing.T, mode string) {
	c := start(t, mode)
	t.Run("Example", c.example)
	if mode == "shared" { // the suite runs it in both modes; what is different here is outside
		t.Run("Walkthrough", c.walkthrough)
	}
	t.Run("Datapath", func(t *testing.T) { labtest.Datapath(t, c.Lab) })
}

// cluster is a cluster with MetalLB.
type cluster struct{ *lab.Lab }

func start(t *testing.T, mode string) *cluster {
	l := labtest.Start(t, "metallb-"+mode, lab.Options{Name: fmt.Sprintf("mlb-%s-%d", mode, os.Getpid()), GatewayMode: mode})
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

// kubectl runs kubectl and returns its output.
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
