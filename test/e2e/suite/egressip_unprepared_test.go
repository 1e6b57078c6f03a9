package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// unprepared has the addresses move to a node that still answers probes, but on which ovnkube is
// not running: they stay with the node that has them, which answers all the time, and the condition
// says what to do. They move when ovnkube runs again.
func (m *moveTest) unprepared(t *testing.T) {
	next := m.other()
	if err := m.Service(t.Context(), "stop", next, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	started := false
	start := func(ctx context.Context) {
		if started {
			return
		}
		started = true
		if err := m.Service(ctx, "start", next, "ovnkube-node"); err != nil {
			t.Error(err)
		}
	}
	defer start(context.WithoutCancel(t.Context()))
	m.reset(t)
	m.assignable(t, next)
	m.awaits(t, moverName, "kept by "+m.holder, func(ip *v1.EgressIP) error {
		c := meta.FindStatusCondition(ip.Status.Conditions, v1.ConditionProgrammed)
		for _, a := range moverIPs {
			want := fmt.Sprintf("node %s does not prepare for %s, which stays with node %s", next, a, m.holder)
			if c == nil || c.Reason != "NotAcknowledged" || !strings.Contains(c.Message, want) {
				return fmt.Errorf("%+v", c)
			}
		}
		return nil
	})
	m.asking(t)
	m.longest(t, "a move to a node that does not act", figures.Undisturbed, "pulse-0", "pulse-1")
	m.inspect(t)
	m.planned(t, "planned move", func() { start(t.Context()) })
	m.assignable(t, "ovn-worker", "ovn-worker2")
	p := nodeProcess(next)
	if err := lab.Until(t.Context(), egressPatience, p.name+" to be ready", func(ctx context.Context) error { return m.readyz(ctx, p) }); err != nil {
		t.Fatal(err)
	}
}
