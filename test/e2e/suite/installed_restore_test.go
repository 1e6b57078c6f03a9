package suite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// replaced are the gaps while ovn-northd and ovn-controllers replace all logical flows.
var replaced = gaps{faultStopped, faultStopped, faultStopped}

// restore replaces all rows of the northbound database by those of a backup, with the commands of
// docs/operations.md. server are the arguments of kubectl exec that name the pod.
func (h *haTest) restore(t *testing.T, server ...string) {
	backup := filepath.Join(h.Dir, "nb.backup")
	inServer := func(command, redirect string) {
		t.Helper()
		kubectl := append(append(h.Kubectl(), "--namespace="+systemNamespace, "exec", "--stdin"), server...)
		if _, err := lab.Run(t.Context(), "sh", "-ec", strings.Join(kubectl, " ")+" -- "+command+" "+redirect+backup); err != nil {
			t.Fatal(err)
		}
	}
	inServer("ovsdb-client backup unix:/run/ovn/ovnnb_db.sock", ">")
	h.recovers(t, replaced, func(t *testing.T) {
		inServer("sh -ec 'cat >/run/ovn/nb.backup; ovsdb-client restore unix:/run/ovn/ovnnb_db.sock </run/ovn/nb.backup; rm /run/ovn/nb.backup'", "<")
	})
}

// loseDatabases deletes the files of the only server of each database, together with the servers.
func (h *haTest) loseDatabases(t *testing.T) {
	h.recovers(t, replaced, func(t *testing.T) {
		if _, err := h.Kin.Exec(t.Context(), lab.ControlPlane, "sh", "-c", "rm -f /var/lib/ovn/*"); err != nil {
			t.Fatal(err)
		}
		h.kubectl(t, "delete", "pod", "--selector=app=ovn-databases", "--grace-period=0", "--force")
		h.kubectl(t, "rollout", "status", "deployment/ovn-databases", "--timeout=3m")
	})
}
