package ovsdb_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
)

// TestMark: a foreign row with a wanted name becomes ours while a master runs, keeps its
// UUID and what others wrote to it, and its owner is notified.
func TestMark(t *testing.T) {
	s := ovsdbtest.StartNB(t)
	s.Nbctl("lr-add", "ovn_cluster_router", "--", "set", "Logical_Router", "ovn_cluster_router", "external_ids:neutron\\:revision=7", "external_ids:old=1")
	s.Nbctl("lrp-add", "ovn_cluster_router", "rtos-n", "0a:58:0a:f4:01:01", "10.244.1.1/24")
	w := connect(t, ovsdb.Config{Address: s.Socket()})
	owner := nb.Owner{Feature: "network"}
	want := []nb.Row{router("ovn_cluster_router"), {ID: "rtos-n", Parent: clusterRouter, Model: &nbdb.LogicalRouterPort{
		Name: "rtos-n", MAC: "0a:58:0a:f4:01:01", Networks: []string{"10.244.1.1/24"},
	}}}
	if err := applyError(t, w, owner, want...); !errors.Is(err, nb.ErrConflict) {
		t.Fatalf("before: %v", err)
	}
	told := make(chan nb.Owner, 10)
	w.OnDrift(func(o nb.Owner) { told <- o })

	client := dial(t, ovsdb.Config{Address: s.Socket()})
	rows, err := client.Stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var marks []nb.Mark
	for _, r := range rows {
		m := nb.Mark{Table: r.Table, UUID: r.UUID, Owner: owner, ID: r.Value("name")}
		if len(r.Parents) == 1 {
			m.Parent = r.Parents[0]
		}
		if r.Owner != nil {
			t.Errorf("%s is taken for ours", r.Value("name"))
		}
		marks = append(marks, m)
	}
	if n, err := client.Mark(t.Context(), rows, marks); n != 2 || err != nil {
		t.Fatalf("%d rows are marked, %v", n, err)
	}
	if o := eventually.Receive(t, "the owner to hear of it", told); o != owner {
		t.Errorf("told of %s", o)
	}
	stats := apply(t, w, owner, want...)
	if stats != (nb.Stats{Updated: 1}) {
		t.Errorf("wrote %+v", stats)
	}
	now, err := client.Stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		i := slices.IndexFunc(now, func(o nb.Stored) bool { return o.UUID == r.UUID })
		if i < 0 || now[i].Owner == nil || *now[i].Owner != owner {
			t.Errorf("%s is %+v", r.Value("name"), now)
			continue
		}
		if ids := now[i].Maps["external_ids"]; r.Table == nbdb.LogicalRouterTable && (ids["neutron:revision"] != "7" || ids["old"] != "") {
			t.Errorf("external_ids are %v", ids)
		}
	}
	if _, err := client.Mark(t.Context(), now, []nb.Mark{{Table: nbdb.ACLTable, UUID: "1", Owner: owner, ID: "a"}}); err == nil {
		t.Error("a row of a table that nobody owns rows of is marked")
	}
}
