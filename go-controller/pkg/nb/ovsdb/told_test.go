package ovsdb_test

import (
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// TestTold: the owner of a BFD session is notified of each change of its status, reads it
// in its rows, and never writes it.
func TestTold(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	seen := watchDrift(w)
	o := nb.Owner{Feature: "externalroute", Object: "a"}
	row := nb.Row{ID: "172.18.0.51", Model: &nbdb.BFD{LogicalPort: "rtoe-GR_a", DstIP: "172.18.0.51"}}
	apply(t, w, o, row)
	uuid := strings.TrimSpace(s.Nbctl("--bare", "--columns=_uuid", "find", "BFD", "dst_ip=172.18.0.51"))
	for _, status := range []string{nbdb.BFDStatusDown, nbdb.BFDStatusInit, nbdb.BFDStatusUp, nbdb.BFDStatusDown} {
		s.Nbctl("set", "BFD", uuid, "status="+status)
		seen.waitFor(t, o)
		rows := w.Rows(o)
		if got := rows[0].Model.(*nbdb.BFD).Status; len(rows) != 1 || got == nil || *got != status {
			t.Errorf("%d rows, status %v, want %s", len(rows), got, status)
		}
		if stats := apply(t, w, o, row); !stats.Zero() {
			t.Errorf("after %s: %+v", status, stats)
		}
	}
}
