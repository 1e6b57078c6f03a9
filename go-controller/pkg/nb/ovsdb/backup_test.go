package ovsdb_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// documented runs a command of docs/operations.md on the database of a server instead of
// the one named in the document.
func documented(t *testing.T, s *ovsdbtest.Server, command, file string) {
	t.Helper()
	const socket = "unix:/run/ovn/ovnnb_db.sock"
	text, err := os.ReadFile("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), command) || !strings.Contains(command, socket) {
		t.Fatalf("docs/operations.md has no %q on %s", command, socket)
	}
	command = strings.NewReplacer(socket, s.Socket(), "/run/ovn/nb.backup", file, "nb.backup", file).Replace(command)
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

const (
	backup  = "ovsdb-client backup unix:/run/ovn/ovnnb_db.sock >nb.backup"
	restore = "ovsdb-client restore unix:/run/ovn/ovnnb_db.sock </run/ovn/nb.backup"
)

// TestBackup restores a database while a master is connected, which notices the different
// rows: after restoring a current backup nothing has to be written, and after an older one
// the differences are repaired.
func TestBackup(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	seen := watchDrift(w)
	file := filepath.Join(t.TempDir(), "backup")
	old, moved, added := policy("10.244.0.5", "10.244.1.2"), policy("10.244.0.6", "10.244.1.2"), policy("10.244.0.7", "10.244.2.2")
	apply(t, w, network, router("ovn_cluster_router"))
	apply(t, w, svc, old, moved)
	before := s.Dump()
	restored := func() {
		t.Helper()
		seen.take()
		documented(t, s, restore, file)
		if after := s.Dump(); after != before {
			t.Errorf("restored:\n%s\nwant\n%s", after, before)
		}
		found := map[nb.Owner]bool{}
		eventually.Succeeds(t, "drift of all owners", func() error {
			for o := range seen.take() {
				found[o] = true
			}
			if !found[network] || !found[svc] {
				return fmt.Errorf("of %v", found)
			}
			return nil
		})
	}

	documented(t, s, backup, file)
	restored()
	if stats := apply(t, w, network, router("ovn_cluster_router")); !stats.Zero() {
		t.Errorf("router: %+v, want nothing", stats)
	}
	if stats := apply(t, w, svc, old, moved); !stats.Zero() {
		t.Errorf("policies: %+v, want nothing", stats)
	}
	moved = policy("10.244.0.6", "10.244.2.2")
	apply(t, w, svc, moved, added)
	wanted := s.Dump()

	restored()
	apply(t, w, network, router("ovn_cluster_router"))
	if stats := apply(t, w, svc, moved, added); stats != (nb.Stats{Inserted: 1, Updated: 1, Deleted: 1}) {
		t.Errorf("policies: %+v, want one inserted, one updated, one deleted", stats)
	}
	if after := s.Dump(); after != wanted {
		t.Errorf("after the master has written:\n%s\nwant\n%s", after, wanted)
	}
}
