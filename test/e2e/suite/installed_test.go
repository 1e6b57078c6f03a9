package suite

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// TestInstalled runs ovnkube and OVN as users do: from the image and the manifests in dist, with
// their flags, mounts and permissions. Updates complete, and disrupt a pod's traffic for no longer
// than the kill of a process does.
func TestInstalled(t *testing.T) {
	var before lab.State
	s := start(t, "shared", func(o *lab.Options) {
		o.Name, o.Install = fmt.Sprintf("e2e-installed-%d", os.Getpid()), "manifests"
		o.Config = configure("auditPolicy: " + auditPolicy)
		o.Before = func(ctx context.Context, l *lab.Lab) (err error) {
			before, err = l.Snapshot(ctx, nodes...)
			return err
		}
	})
	t.Run("Connectivity", s.connectivity)
	t.Run("Databases", s.databases)
	t.Run("Metrics", s.installedMetrics)
	t.Run("EgressService", s.familyService)
	t.Run("EgressIP", s.familyAddress)
	t.Run("Trace", s.installedTrace)
	t.Run("Update", s.update)
	// Next to other clusters on the same processors, as in a complete run, elections and nodes are
	// too slow for the bounds.
	if os.Getenv("HIGH_AVAILABILITY") != "" {
		t.Run("Recovery", s.recovery)
		t.Run("HighAvailability", s.highAvailability)
	}
	t.Run("InUse", s.egressInUse)
	t.Run("Permissions", s.installedPermissions)
	t.Run("Uninstall", func(t *testing.T) { s.uninstall(t, before) })
}

// update restarts everything that an update restarts, as kubectl rollout does.
func (s *suite) update(t *testing.T) {
	for _, workload := range []string{"daemonset/ovnkube-node", "daemonset/ovn-controller", "deployment/ovnkube-master", "deployment/ovn-databases", "deployment/ovnkube-pki"} {
		t.Run(workload, func(t *testing.T) { s.restart(t, workload) })
	}
	t.Run("Connectivity", s.connectivity)
	s.noRestarts(t)
}

// noRestarts fails the test if a container of ovnkube or OVN ended by itself.
func (s *suite) noRestarts(t *testing.T) {
	t.Helper()
	err := lab.Until(t.Context(), time.Minute, "all pods of ovnkube to be ready", func(ctx context.Context) error {
		out, err := lab.Run(ctx, append(s.Kubectl(), "--namespace=ovn-kubernetes", "get", "pods",
			"--output=jsonpath={range .items[*]}{.metadata.name}{range .status.containerStatuses[*]} {.name}={.ready},{.restartCount}{end}{\"\\n\"}{end}")...)
		if err != nil {
			return err
		}
		for field := range strings.FieldsSeq(out) {
			if _, state, ok := strings.Cut(field, "="); ok && state != "true,0" {
				return fmt.Errorf("ready and restarted: %s", out)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
