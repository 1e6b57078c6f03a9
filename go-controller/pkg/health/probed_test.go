package health

import (
	"net/netip"
	"testing"
	"time"
)

// TestProbed: Probed waits for the first targets, but not for long, and not for those that are
// added later.
func TestProbed(t *testing.T) {
	for name, test := range map[string]struct {
		total, rtt time.Duration
		nodes      []string
		after      time.Duration // Probed is closed, and not before
	}{
		"all answer":         {timeout, 30 * time.Millisecond, []string{"n1", "n2"}, 30 * time.Millisecond},
		"one is silent":      {timeout, 30 * time.Millisecond, []string{"n1", "silent"}, timeout},
		"it may be for long": {time.Minute, 30 * time.Millisecond, []string{"n1", "silent"}, time.Second},
		"nobody probes":      {0, 0, []string{"n1", "silent"}, 0},
		"there is no node":   {timeout, 0, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(v4)
			w.rtt = test.rtt
			bubble(t, w, test.total, func(t *testing.T, tr *Tracker, _ *changes) {
				closed := func() bool {
					select {
					case <-tr.Probed():
						return true
					default:
						return false
					}
				}
				if closed() {
					t.Fatal("closed before any node is known")
				}
				all := targets(test.nodes...)
				if len(test.nodes) == 0 {
					all = nil
				}
				if _, ok := all["silent"]; ok {
					all["silent"] = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
				}
				tr.SetTargets(all)
				if test.after > 0 {
					pass(test.after - time.Millisecond)
					if closed() {
						t.Error("closed while something may still be heard of a node")
					}
					pass(time.Millisecond)
				}
				if !closed() {
					t.Error("not closed")
				}
				all = targets("late")
				all["late"] = []netip.Addr{netip.MustParseAddr("192.0.2.2")}
				tr.SetTargets(all)
				if !closed() {
					t.Error("a node that comes later is waited for")
				}
			})
		})
	}
	bubble(t, newWorld(), timeout, func(t *testing.T, tr *Tracker, _ *changes) {
		tr.SetTargets(map[string][]netip.Addr{"n1": {v4}})
		tr.SetTargets(nil)
		select {
		case <-tr.Probed():
		default:
			t.Error("a node that is gone is waited for")
		}
	})
}
