package service

import (
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// TestWithPolicies: existing policies stay, and planned ones are added unless there is one for the same
// source, for pods that are rerouted or not.
func TestWithPolicies(t *testing.T) {
	row := func(id, match string) nb.Row { return nb.Row{ID: id, Model: &nbdb.LogicalRouterPolicy{Match: match}} }
	got := WithPolicies(
		[]nb.Row{row("replies a", "planned"), row("replies b plain", "planned"), row("replies c", "planned"), row("replies d", "planned"), {ID: "vip", Model: &nbdb.LoadBalancer{}}},
		[]nb.Row{row("replies a", "existing"), row("replies b", "existing"), row("replies c plain", "existing"), row("replies e", "existing"), {ID: "old", Model: &nbdb.LoadBalancer{}}})
	want := map[string]string{"replies a": "existing", "replies b": "existing", "replies c plain": "existing", "replies d": "planned", "replies e": "existing", "vip": ""}
	if len(got) != len(want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
	for _, r := range got {
		match := ""
		if p, ok := r.Model.(*nbdb.LogicalRouterPolicy); ok {
			match = p.Match
		}
		if wanted, ok := want[r.ID]; !ok || match != wanted {
			t.Errorf("row %q with match %q, want %q", r.ID, match, wanted)
		}
	}
}
