package monitoring

import (
	"slices"
	"testing"
)

func TestTarget(t *testing.T) {
	target := Target{Expr: `sum by (kind) (rate(a_total{x="y"}[$__rate_interval])) / rate(b[$__rate_interval])`, Legend: "{{kind}}: {{at}}"}
	if got, want := target.Query("1m"), `sum by (kind) (rate(a_total{x="y"}[1m])) / rate(b[1m])`; got != want {
		t.Errorf("query %s, want %s", got, want)
	}
	if got := target.Labels(); !slices.Equal(got, []string{"kind", "at"}) {
		t.Errorf("labels %q", got)
	}
	if got := target.Name(map[string]string{"kind": "EgressIP", "at": "host", "x": "y"}); got != "EgressIP: host" {
		t.Errorf("name %q", got)
	}
}

func TestSelectors(t *testing.T) {
	for query, want := range map[string][]string{
		"max(ovnkube_leader) == 0 or absent(ovnkube_leader)": {"ovnkube_leader", "ovnkube_leader"},
		`time() - min by (kind) (ovnkube_x_seconds{type="A",status!="False"}) > 300 and increase(ovnkube_y_total[10m] offset 10m) > 0`: {
			`ovnkube_x_seconds{type="A",status!="False"}`, "ovnkube_y_total"},
		"vector(0)": nil,
	} {
		if got := Selectors(query); !slices.Equal(got, want) {
			t.Errorf("%s: %q", query, got)
		}
	}
}
