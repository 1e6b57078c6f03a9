package health

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// observed records what a tracker reports to its observer.
type observed struct {
	mu      sync.Mutex
	probes  map[string]int
	changes []string
}

func (o *observed) Probed(took time.Duration, answered, sent bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probes[fmt.Sprint(took, answered, sent)]++
}

func (o *observed) Changed(node string, reach place.Reach, answered time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if node != "own" {
		ago := "never"
		if !answered.IsZero() {
			ago = time.Since(answered).String()
		}
		o.changes = append(o.changes, fmt.Sprint(node, " ", reach, " ", ago))
	}
}

// take returns what was reported since the last call.
func (o *observed) take() (probes map[string]int, changes []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	probes, changes = o.probes, o.changes
	o.probes, o.changes = map[string]int{}, nil
	return probes, changes
}

// TestObserver: the observer gets each probe, and when a node last answered before it was found
// dead.
func TestObserver(t *testing.T) {
	w := newWorld(v4)
	w.rtt = 20 * time.Millisecond
	bubble(t, w, timeout, func(t *testing.T, tr *Tracker, _ *changes) {
		o := &observed{probes: map[string]int{}}
		tr.Observe(o)
		tr.SetTargets(targets("n1"))
		pass(w.rtt)
		probes, changes := o.take()
		if want := []string{"n1 alive 0s"}; probes["20ms true true"] != 2 || !slices.Equal(changes, want) {
			t.Errorf("probes %v, changes %v; want two that took 20ms, and %v", probes, changes, want)
		}
		tr.Each(func(node string, reach place.Reach, answer time.Duration) {
			if reach != place.Alive || answer != w.rtt {
				t.Errorf("%s is %s, answered in %s", node, reach, answer)
			}
		})

		w.set(w.alive, v4, false)
		pass(3 * timeout)
		probes, changes = o.take()
		// Probed four times per second: this is the first tick after a second of silence.
		if want := []string{"n1 dead 1.23s"}; probes["1s false true"] == 0 || !slices.Equal(changes, want) {
			t.Errorf("probes %v, changes %v; want silent ones, and %v", probes, changes, want)
		}

		w.set(w.fault, v4, true)
		w.set(w.fault, v6, true)
		pass(timeout)
		if probes, _ = o.take(); probes["0s false false"] == 0 {
			t.Errorf("probes %v, want some that were not sent", probes)
		}

		tr.SetTargets(targets())
		if _, changes = o.take(); !slices.Equal(changes, []string{"n1 unknown never"}) {
			t.Errorf("changes %v", changes)
		}
	})
}
