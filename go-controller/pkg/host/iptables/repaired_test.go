package iptables

import (
	"os/exec"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestRepaired: a pass that repairs what others did counts; one that writes what a contributor has
// changed does not.
func TestRepaired(t *testing.T) {
	netnstest.New(t)
	w := newWriter(t, everywhere()...)
	for _, step := range []struct {
		what string
		do   func() error
		want uint64
	}{
		{"the start", func() error { return w.Apply(t.Context(), "a", inEvery("one")) }, 0},
		{"the sweep", func() error { return w.Sweep(t.Context()) }, 0},
		{"every chain changed", func() error { return w.Apply(t.Context(), "a", inEvery("two")) }, 0},
		{"somebody flushed a table", func() error { return exec.Command("iptables", "-w", "-t", "nat", "-F").Run() }, 0},
		{"the repair", func() error { return w.Resync(t.Context()) }, 1},
		{"nothing new", func() error { return w.Resync(t.Context()) }, 1},
		{"somebody flushed it again", func() error { return exec.Command("ip6tables", "-w", "-t", "nat", "-F").Run() }, 1},
		{"the same contribution", func() error { return w.Apply(t.Context(), "a", inEvery("two")) }, 1}, // which does not read the tables
		{"the repair", func() error { return w.Resync(t.Context()) }, 2},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := w.Repaired(); got != step.want {
			t.Errorf("after %s: %d repaired, want %d", step.what, got, step.want)
		}
	}
}
