package ovsdb_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

var clusterRouter = nb.Parent{Table: nbdb.LogicalRouterTable, Name: "ovn_cluster_router"}

func connect(t testing.TB, cfg ovsdb.Config) *ovsdb.Writer {
	t.Helper()
	return ovsdb.NewWriter(dial(t, cfg))
}

func dial(t testing.TB, cfg ovsdb.Config) *ovsdb.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := ovsdb.Connect(ctx, cfg)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

func apply(t testing.TB, w *ovsdb.Writer, o nb.Owner, want ...nb.Row) nb.Stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stats, err := w.Apply(ctx, o, want)
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	return stats
}

func applyError(t testing.TB, w *ovsdb.Writer, o nb.Owner, want ...nb.Row) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stats, err := w.Apply(ctx, o, want)
	if err == nil {
		t.Fatalf("Apply wrote %+v, want an error", stats)
	}
	return err
}

func router(name string) nb.Row {
	return nb.Row{ID: name, Model: &nbdb.LogicalRouter{Name: name, Options: map[string]string{"always_learn_from_arp_request": "false"}}}
}

func policy(addr, via string) nb.Row {
	return nb.Row{ID: addr, Parent: clusterRouter, Model: &nbdb.LogicalRouterPolicy{
		Priority: 101, Match: "ip4.src == " + addr, Action: nbdb.LogicalRouterPolicyActionReroute, Nexthops: []string{via},
		ExternalIDs: map[string]string{"EgressSVC": "ns/svc"},
	}}
}

var (
	network = nb.Owner{Feature: "network"}
	svc     = nb.Owner{Feature: "egressservice", Object: "ns/svc"}
)

// fields makes the columns of a table independent of its layout.
func fields(table string) string {
	var lines []string
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestApply(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})

	err := applyError(t, w, svc, policy("10.244.0.5", "10.244.1.2"))
	if !errors.Is(err, nb.ErrNoParent) {
		t.Errorf("without the router: %v, want ErrNoParent", err)
	}
	apply(t, w, network, router("ovn_cluster_router"))
	stats := apply(t, w, svc, policy("10.244.0.5", "10.244.1.2"), policy("10.244.2.7", "10.244.1.2"))
	if want := (nb.Stats{Inserted: 2}); stats != want {
		t.Errorf("stats %+v, want %+v", stats, want)
	}
	list := fields(s.Nbctl("lr-policy-list", "ovn_cluster_router"))
	for _, line := range []string{
		"101 ip4.src == 10.244.0.5 reroute 10.244.1.2",
		"101 ip4.src == 10.244.2.7 reroute 10.244.1.2",
	} {
		if !strings.Contains(list, line) {
			t.Errorf("lr-policy-list lacks %q:\n%s", line, list)
		}
	}

	before := s.Records()
	if stats := apply(t, w, svc, policy("10.244.2.7", "10.244.1.2"), policy("10.244.0.5", "10.244.1.2")); !stats.Zero() {
		t.Errorf("no-op wrote %+v", stats)
	}
	if after := s.Records(); after != before {
		t.Errorf("no-op wrote %d transactions", after-before)
	}

	stats = apply(t, w, svc, policy("10.244.2.7", "10.244.9.2"))
	if want := (nb.Stats{Updated: 1, Deleted: 1}); stats != want {
		t.Errorf("stats %+v, want %+v", stats, want)
	}
	if n := s.Records() - before; n != 1 {
		t.Errorf("change took %d transactions, want 1", n)
	}
	if owners := w.Owners("egressservice"); len(owners) != 1 || owners[0] != svc {
		t.Errorf("owners %v, want %v", owners, svc)
	}
	apply(t, w, svc)
	if list := s.Nbctl("lr-policy-list", "ovn_cluster_router"); strings.Contains(list, "101") {
		t.Errorf("policies left:\n%s", list)
	}
	if owners := w.Owners("egressservice"); len(owners) != 0 {
		t.Errorf("owners %v, want none", owners)
	}
}

// TestApplyAll: changes of several owners are one transaction, however many unchanged rows
// they have; only the owner whose rows are rejected fails.
func TestApplyAll(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	apply(t, w, network, router("ovn_cluster_router"))
	want := benchRows(3000, 20)
	if stats, errs := w.ApplyAll(t.Context(), want); len(errs) > 0 || stats.Inserted != 3000 {
		t.Fatalf("stats %+v, errors %v", stats, errs)
	}
	// An owner is answered a moment before it may be in the next transaction. An Apply that writes nothing waits
	// for that moment.
	if stats, errs := w.ApplyAll(t.Context(), want); len(errs) > 0 || !stats.Zero() {
		t.Fatalf("the same again: stats %+v, errors %v", stats, errs)
	}
	before := s.Records()
	for o, rows := range want {
		rows[0] = policy(rows[0].ID, "10.244.9.2")
		rows[0].Model.(*nbdb.LogicalRouterPolicy).ExternalIDs = map[string]string{"EgressSVC": o.Object}
	}
	lost := nb.Owner{Feature: "egressservice", Object: "ns/lost"}
	want[lost] = []nb.Row{{ID: "x", Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: "absent"}, Model: rowModel()}}
	stats, errs := w.ApplyAll(t.Context(), want)
	if stats.Updated != 20 || len(errs) != 1 || !errors.Is(errs[lost], nb.ErrNoParent) {
		t.Errorf("stats %+v, errors %v", stats, errs)
	}
	if n := s.Records() - before; n != 1 {
		t.Errorf("a change of each of 20 owners took %d transactions", n)
	}
	if stats, errs := w.ApplyAll(t.Context(), nil); len(errs) > 0 || !stats.Zero() {
		t.Errorf("nothing wrote %+v: %v", stats, errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, errs := w.ApplyAll(ctx, want); len(errs) != len(want) {
		t.Errorf("%d errors of %d owners after the end of the context", len(errs), len(want))
	}
}

func rowModel() *nbdb.LogicalRouterPolicy {
	return &nbdb.LogicalRouterPolicy{Priority: 1, Match: "ip4", Action: nbdb.LogicalRouterPolicyActionAllow}
}
