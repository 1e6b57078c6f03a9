package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// patience bounds waits on conditions; it is never waited for in a passing run.
const patience = 20 * time.Second

// recorder counts reconciles and lets tests wait for them.
type recorder struct {
	mu    sync.Mutex
	count map[string]int
	fail  map[string]int // failures left per key
	event chan struct{}
}

func newRecorder() *recorder {
	return &recorder{count: map[string]int{}, fail: map[string]int{}, event: make(chan struct{}, 1000)}
}

func (r *recorder) reconcile(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[key]++
	r.event <- struct{}{}
	if r.fail[key] > 0 {
		r.fail[key]--
		return errors.New("not yet")
	}
	return nil
}

func (r *recorder) waitFor(t *testing.T, what string, ok func(count map[string]int) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		done := ok(r.count)
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-r.event:
		case <-deadline:
			t.Fatalf("waited in vain for %s; reconciled %v", what, r.count)
		}
	}
}

func run(t *testing.T, c *Controller) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, 2) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run did not return after its context ended")
		}
	})
}

func waitClosed(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

func TestFailingKeyIsRetriedUntilItSucceeds(t *testing.T) {
	r := newRecorder()
	r.fail["a"] = 4
	c := New("test", r.reconcile)
	run(t, c)
	c.Enqueue("a", "b")
	r.waitFor(t, "five tries of a and one of b", func(n map[string]int) bool { return n["a"] == 5 && n["b"] == 1 })
}

func TestSweepWaitsForEveryStartUpKey(t *testing.T) {
	r := newRecorder()
	r.fail["slow"] = 3
	c := New("test", r.reconcile)
	c.Seed(func() []string { return []string{"slow", "fast"} })
	c.Seed(func() []string { return []string{"fast", "owned-by-nobody"} })
	var seen map[string]int
	sweeps := 0
	c.OnSeeded(func(context.Context) error {
		sweeps++
		if sweeps == 1 {
			return errors.New("target is away")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		seen = map[string]int{}
		for k, n := range r.count {
			seen[k] = n
		}
		return nil
	})
	run(t, c)
	waitClosed(t, c.Seeded(), "the start-up keys")
	want := map[string]int{"slow": 4, "fast": 1, "owned-by-nobody": 1}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("swept after %v, want %v", seen, want)
	}
	if sweeps != 2 {
		t.Errorf("a sweep that failed once ran %d times, want 2", sweeps)
	}
}

func TestNoSeedsAreSettledAtOnce(t *testing.T) {
	c := New("test", newRecorder().reconcile)
	run(t, c)
	waitClosed(t, c.Seeded(), "a controller without seeds")
}

func TestWatchShowsWhatAnObjectWas(t *testing.T) {
	cs := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}})
	factory := informers.NewSharedInformerFactory(cs, 0)
	r := newRecorder()
	c := New("test", r.reconcile)
	zones := func(old, new any) []string {
		var keys []string
		for _, o := range []any{old, new} {
			if n, ok := o.(*corev1.Node); ok {
				keys = append(keys, "zone-"+n.Labels["zone"])
			}
		}
		return keys
	}
	if err := c.Watch(factory.Core().V1().Nodes().Informer(), zones); err != nil {
		t.Fatal(err)
	}
	fakeapi.Start(t.Context(), t, cs, factory)
	run(t, c)
	r.waitFor(t, "the added node", func(n map[string]int) bool { return n["zone-a"] == 1 })

	moved := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "b"}}}
	if _, err := cs.CoreV1().Nodes().Update(t.Context(), moved, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, "both zones of the moved node", func(n map[string]int) bool { return n["zone-a"] == 2 && n["zone-b"] == 1 })

	if err := cs.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.waitFor(t, "the zone of the deleted node", func(n map[string]int) bool { return n["zone-b"] == 2 })
}
