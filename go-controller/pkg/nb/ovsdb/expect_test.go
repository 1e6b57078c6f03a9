package ovsdb

import (
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// TestRefusedAgainAndAgain: rows that the server refuses at every retry, which no event confirms, need no more memory with each.
func TestRefusedAgainAndAgain(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	c, err := Connect(t.Context(), Config{Address: s.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	w, owner := NewWriter(c), nb.Owner{Feature: "network", Object: "n"}
	rows := []nb.Row{
		{ID: "r", Model: &nbdb.LogicalRouter{Name: "r"}},
		{ID: "p", Model: &nbdb.LogicalRouterPolicy{Priority: 99999, Action: "allow"}, Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: "r"}},
	}
	// Rows that exist, of which one is to be deleted, and another one to be replaced, since a row cannot change its parent.
	other := nb.Row{ID: "other", Model: &nbdb.LogicalRouter{Name: "other"}}
	moved := func(to string) nb.Row {
		return nb.Row{ID: "moved", Model: &nbdb.LogicalRouterPolicy{Priority: 1, Action: "allow"}, Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: to}}
	}
	if _, err := w.Apply(t.Context(), owner, []nb.Row{rows[0], other, {ID: "gone", Model: &nbdb.LogicalRouter{Name: "gone"}}, moved("r")}); err != nil {
		t.Fatal(err)
	}
	rows = append(rows, other, moved("other"))
	var size int
	for i := range 5 {
		if _, err := w.Apply(t.Context(), owner, rows); err == nil {
			t.Fatal("the server takes a priority that its schema forbids")
		}
		w.drift.mu.Lock()
		now := 0
		for _, states := range w.drift.written {
			now += len(states)
		}
		w.drift.mu.Unlock()
		if i == 0 {
			size = now
		} else if now != size {
			t.Fatalf("%d states are expected after %d refusals, %d after the first one", now, i+1, size)
		}
	}
}
