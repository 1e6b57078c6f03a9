package services

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const mergePatch = types.MergePatchType

// endpoints come and go, and connections to those that stay go on.
func (w *world) endpoints(t *testing.T) {
	s := w.make(t, "endpoints")
	w.try(t, "both", way{pod("c1"), s.cluster, []string{"s1", "s2"}, nil})
	if err := w.serveOnly(t.Context(), s, "s2"); err != nil {
		t.Fatal(err)
	}
	w.try(t, "one", way{pod("c1"), s.cluster, []string{"s2"}, nil})
	if err := w.serveOnly(t.Context(), s, "none"); err != nil {
		t.Fatal(err)
	}
	w.try(t, "none", way{pod("c1"), s.cluster, nil, nil})
	w.try(t, "none from outside", way{machine(lab.Outside), w.port(s, worker1), nil, nil})
	if err := w.serveOnly(t.Context(), s, "s1"); err != nil {
		t.Fatal(err)
	}
	w.try(t, "another", way{pod("c1"), s.cluster, []string{"s1"}, nil})
	w.try(t, "another from outside", way{machine(lab.Outside), w.port(s, worker1), []string{"s1"}, nil})
}

// restart ends ovnkube on a node and on the control plane, and sees that nothing is
// written and nobody is cut off.
func (w *world) restart(t *testing.T) {
	s := w.make(t, "restart", loadBalancer)
	both := []string{"s1", "s2"}
	w.try(t, "before", way{machine(lab.Outside), w.port(s, worker1), both, nil})
	before, err := w.traces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, daemon := range []string{"ovnkube-node", "ovnkube-master"} {
		if err := w.Kin.Service(t.Context(), "restart", lab.ControlPlane, daemon); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Kin.Service(t.Context(), "restart", worker1, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	w.try(t, "after", way{machine(lab.Outside), w.port(s, worker1), both, nil})
	after, err := w.traces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, after) {
		t.Errorf("what is programmed has changed:\nbefore %s\nafter  %s", before, after)
	}
}

// traces returns how large the northbound database has grown, which every write
// makes larger, and the rules on a node.
func (w *world) traces(ctx context.Context) ([]string, error) {
	var out []string
	for _, command := range [][]string{
		{lab.ControlPlane, "stat", "-c", "%s", "/var/lib/ovn/ovnnb_db.db"},
		{worker1, "iptables-save", "-t", "nat"},
		{worker1, "ovs-ofctl", "--no-stats", "--sort", "dump-flows", "breth0"},
	} {
		text, err := w.Kin.Exec(ctx, command[0], command[1:]...)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", command[0], err)
		}
		var kept []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") { // times and counters
				kept = append(kept, line)
			}
		}
		out = append(out, strings.Join(kept, ""))
	}
	return out, nil
}
