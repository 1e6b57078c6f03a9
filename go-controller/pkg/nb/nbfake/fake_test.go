package nbfake_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbfake"
)

var (
	network = nb.Owner{Feature: "network"}
	svc     = nb.Owner{Feature: "egressservice", Object: "ns/svc"}
)

func router() nb.Row {
	return nb.Row{ID: "router", Model: &nbdb.LogicalRouter{Name: "ovn_cluster_router"}}
}

func policy(addr string, hops ...string) nb.Row {
	return nb.Row{
		ID: addr, Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: "ovn_cluster_router"},
		Model: &nbdb.LogicalRouterPolicy{
			Priority: 101, Match: "ip4.src == " + addr, Action: "reroute", Nexthops: hops,
			ExternalIDs: map[string]string{"EgressSVC": "ns/svc"},
		},
	}
}

func apply(t *testing.T, w *nbfake.Writer, o nb.Owner, want nb.Stats, rows ...nb.Row) {
	t.Helper()
	stats, err := w.Apply(context.Background(), o, rows)
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if stats != want {
		t.Fatalf("Apply wrote %+v, want %+v", stats, want)
	}
}

func TestApply(t *testing.T) {
	w := nbfake.New()
	if _, err := w.Apply(context.Background(), svc, []nb.Row{policy("10.244.0.5")}); !errors.Is(err, nb.ErrNoParent) {
		t.Errorf("without a router: %v, want ErrNoParent", err)
	}
	apply(t, w, network, nb.Stats{Inserted: 1}, router())
	apply(t, w, svc, nb.Stats{Inserted: 1}, policy("10.244.0.5", "10.244.2.2", "10.244.1.2"))
	apply(t, w, svc, nb.Stats{}, policy("10.244.0.5", "10.244.1.2", "10.244.2.2"))
	want := `Logical_Router name=ovn_cluster_router [network/ router]
Logical_Router_Policy in ovn_cluster_router: action=reroute external_ids={EgressSVC=ns/svc} match="ip4.src == 10.244.0.5" nexthops=[10.244.1.2, 10.244.2.2] priority=101 [egressservice/ns/svc 10.244.0.5]
`
	if got := w.Dump(); got != want {
		t.Errorf("Dump:\n%swant:\n%s", got, want)
	}
	apply(t, w, svc, nb.Stats{Updated: 1}, policy("10.244.0.5", "10.244.1.2"))
	apply(t, w, svc, nb.Stats{Inserted: 1, Deleted: 1}, policy("10.244.0.6", "10.244.1.2"))
	if got := w.Writes(); got != 4 {
		t.Errorf("%d writes, want 4", got)
	}
	if got := w.Owners("egressservice"); len(got) != 1 || got[0] != svc {
		t.Errorf("owners %v", got)
	}
	other := nb.Owner{Feature: "other"}
	if _, err := w.Apply(context.Background(), other, []nb.Row{router()}); !errors.Is(err, nb.ErrConflict) {
		t.Errorf("second router of that name: %v, want ErrConflict", err)
	}
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	w := nbfake.New()
	var drifted []nb.Owner
	w.OnDrift(func(o nb.Owner) { drifted = append(drifted, o) })
	apply(t, w, network, nb.Stats{Inserted: 1}, router())
	apply(t, w, svc, nb.Stats{Inserted: 1}, policy("10.244.0.5"))
	apply(t, w, network, nb.Stats{Deleted: 1})
	if got := w.Dump(); got != "" {
		t.Errorf("left over:\n%s", got)
	}
	if len(drifted) != 1 || drifted[0] != svc {
		t.Errorf("drift of %v, want %v", drifted, svc)
	}
}

func TestRemoveAndFail(t *testing.T) {
	w := nbfake.New()
	apply(t, w, network, nb.Stats{Inserted: 1}, router())
	var drifted []nb.Owner
	w.OnDrift(func(o nb.Owner) { drifted = append(drifted, o) })
	if !w.Remove(network, nbdb.LogicalRouterTable, "router") || len(drifted) != 1 {
		t.Errorf("Remove: drift of %v", drifted)
	}
	boom := errors.New("boom")
	w.FailWith(func(nb.Owner) error { return boom })
	if _, err := w.Apply(context.Background(), network, []nb.Row{router()}); !errors.Is(err, boom) {
		t.Errorf("Apply: %v, want %v", err, boom)
	}
	w.FailWith(nil)
	apply(t, w, network, nb.Stats{Inserted: 1}, router())
}
