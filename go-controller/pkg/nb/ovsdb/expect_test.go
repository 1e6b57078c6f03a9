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
	for range 5 {
		if _, err := w.Apply(t.Context(), owner, rows); err == nil {
			t.Fatal("the server takes a priority that its schema forbids")
		}
	}
	w.drift.mu.Lock()
	defer w.drift.mu.Unlock()
	if len(w.drift.written) != len(rows) {
		t.Errorf("%d rows are expected, want %d", len(w.drift.written), len(rows))
	}
	for id, states := range w.drift.written {
		if len(states) != 1 {
			t.Errorf("%d states of %v are expected", len(states), id)
		}
	}
}
