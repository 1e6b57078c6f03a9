package suite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// recovery restores a backup of the northbound database, and then loses both databases: they follow
// from the objects in the API server. No packet leaves with a wrong source, and changes take effect
// in time.
func (s *suite) recovery(t *testing.T) {
	f := s.newFaultTest(t)
	t.Run("backup restored", func(t *testing.T) {
		f.suffers(t, "northbound database restored", refilled, func() { f.restore(t, "deployment/ovn-databases") })
		f.changes(t)
		f.inspect(t)
	})
	// Open connections may not survive: ovn-controllers give all datapaths other conntrack zones.
	t.Run("databases lost", func(t *testing.T) {
		if _, err := f.Kin.Exec(t.Context(), lab.ControlPlane, "sh", "-c", "rm -f /var/lib/ovn/*"); err != nil {
			t.Fatal(err)
		}
		f.kubectl(t, "delete", "pod", "--selector=app=ovn-databases", "--grace-period=0", "--force")
		f.kubectl(t, "rollout", "status", "deployment/ovn-databases", "--timeout=3m")
		f.changes(t)
		f.inspect(t)
	})
}

// restore replaces all rows of the northbound database by those of a backup that it makes first, with
// the commands of docs/operations.md. server is the pod of a server, or its workload.
func (s *suite) restore(t *testing.T, server string) {
	t.Helper()
	backup := filepath.Join(s.Dir, "nb.backup")
	in := func(command string) {
		t.Helper()
		exec := append(append(s.Kubectl(), "--namespace="+systemNamespace), "exec", "--stdin", server, "--container=nb", "--", command)
		if _, err := lab.Run(t.Context(), "sh", "-ec", strings.Join(exec, " ")); err != nil {
			t.Fatal(err)
		}
	}
	in("ovsdb-client backup unix:/run/ovn/ovnnb_db.sock >" + backup)
	in("sh -c 'cat >/run/ovn/nb.backup && ovsdb-client restore unix:/run/ovn/ovnnb_db.sock </run/ovn/nb.backup && rm /run/ovn/nb.backup' <" + backup)
}

// restoreMember is restore in the leading member of a clustered database.
func (h *haTest) restoreMember(t *testing.T) {
	members, err := h.members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leader := members[h.leader(t, clusteredDatabases[0])]
	h.loses(t, refilled, func(t *testing.T) { h.restore(t, "pod/"+leader) })
}
