package ovsdb

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovsdbtest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestMembersOfLargeGroup: whatever becomes of a load balancer, what is sent does not grow with its group.
func TestMembersOfLargeGroup(t *testing.T) {
	const most = 2000
	groups := []string{topology.ClusterLBGroup, topology.ClusterSwitchLBGroup}
	balancer := func(name, group, endpoint string) (nb.Owner, []nb.Row) {
		return nb.Owner{Feature: "service", Object: name}, []nb.Row{{ID: name, Parent: nb.Parent{Table: nbdb.LoadBalancerGroupTable, Name: group},
			Model: &nbdb.LoadBalancer{Name: name, Vips: map[string]string{"10.96.0.9:80": endpoint}}}}
	}
	s := ovsdbtest.StartNB(t)
	c, err := Connect(t.Context(), Config{Address: s.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := NewWriter(c)
	apply := func(want map[nb.Owner][]nb.Row) {
		t.Helper()
		if _, errs := w.ApplyAll(t.Context(), want); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	var rows []nb.Row
	for _, g := range groups {
		rows = append(rows, nb.Row{Model: &nbdb.LoadBalancerGroup{Name: g}})
	}
	apply(map[nb.Owner][]nb.Row{{Feature: networkFeature}: rows})
	for _, size := range []int{10, most} {
		all := map[nb.Owner][]nb.Row{}
		for i := range size {
			o, rows := balancer(fmt.Sprintf("lb-%d", i), groups[0], "10.244.0.3:80")
			all[o] = rows
		}
		apply(all)
		for name, path := range map[string]struct {
			lb, group, endpoint string
			attempts            int
			ops                 string
		}{
			"created":              {"new", groups[0], "10.244.0.3:80", 0, "insert mutate"},
			"changed":              {"lb-3", groups[0], "10.244.0.4:80", 0, "update"},
			"moved":                {"lb-3", groups[1], "10.244.0.3:80", 0, "delete insert mutate"},
			"deleted":              {"lb-3", "", "", 0, "delete"},
			"deleted, once more":   {"lb-3", "", "", 1, "delete"},
			"created, once more":   {"new", groups[0], "10.244.0.3:80", 1, "insert mutate"},
			"nothing is different": {"lb-3", groups[0], "10.244.0.3:80", 0, ""},
		} {
			t.Run(fmt.Sprintf("%s/of=%d", name, size), func(t *testing.T) {
				o, want := balancer(path.lb, path.group, path.endpoint)
				if path.group == "" {
					want = nil
				}
				session, err := c.current(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				b, err := w.plan(session.view, &request{ctx: t.Context(), owner: o, want: want, attempts: path.attempts})
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				ops := newTransaction([]*part{b}).ops
				for _, op := range ops {
					names = append(names, op.Op)
				}
				sent, err := json.Marshal(ops)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(names, " "); got != path.ops || len(sent) > 1000 {
					t.Errorf("%d bytes: %q, want %q: %.1000s", len(sent), got, path.ops, sent)
				}
			})
		}
	}
}
