package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// recorder counts reconciles and lets tests wait for them.
type recorder struct {
	mu    sync.Mutex
	count map[string]int
	fail  map[string]int // failures left per key
}

func newRecorder() *recorder {
	return &recorder{count: map[string]int{}, fail: map[string]int{}}
}

func (r *recorder) reconcile(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[key]++
	if r.fail[key] > 0 {
		r.fail[key]--
		return errors.New("not yet")
	}
	return nil
}

func (r *recorder) waitFor(t *testing.T, what string, ok func(count map[string]int) bool) {
	t.Helper()
	eventually.True(t, what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return ok(r.count)
	}, eventually.Dump(func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprintf("reconciled %v", r.count)
	}))
}

func run(t *testing.T, c *Controller) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, 2) }()
	t.Cleanup(func() {
		cancel()
		if err := eventually.Receive(t, "Run to return", done); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestFailingKeyIsRetriedUntilItSucceeds(t *testing.T) {
	r := newRecorder()
	r.fail["a"] = 4
	c := New("test", r.reconcile)
	run(t, c)
	c.Enqueue("a", "b")
	r.waitFor(t, "five tries of a and one of b", func(n map[string]int) bool { return n["a"] == 5 && n["b"] == 1 })
}

// TestStartIsOverWhenEveryKeyWasTried: a key never succeeds, and the end of
// the start does not depend on it: only the deletion of leftovers
// does.
func TestStartIsOverWhenEveryKeyWasTried(t *testing.T) {
	r := newRecorder()
	r.fail["broken"] = 1 << 30
	c := New("never", r.reconcile)
	c.Seed(func() []string { return []string{"broken", "fast"} })
	c.Seed(func() []string { return []string{"fast", "owned-by-nobody"} })
	var seen map[string]int
	runs := 0
	c.OnAttempted(func(context.Context) error {
		if runs++; runs == 1 {
			return errors.New("target is away")
		}
		if runs == 2 {
			panic("target is odd")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		seen = maps.Clone(r.count)
		return nil
	})
	run(t, c)
	eventually.Receive(t, "the end of the start", c.Attempted())
	if seen["broken"] == 0 || seen["fast"] != 1 || seen["owned-by-nobody"] != 1 {
		t.Errorf("the start was over after %v", seen)
	}
	if runs != 3 {
		t.Errorf("a function that failed once and panicked once ran %d times, want 3", runs)
	}
	select {
	case <-c.Synced():
		t.Error("all have spoken, with a key that never succeeded")
	default:
	}
	all := Failures()
	if len(all) != 1 || all[0].Controller != "never" || all[0].Key != "broken" || all[0].Tries == 0 ||
		!strings.Contains(all[0].String(), `never "broken": not yet`) {
		t.Errorf("failures are %v", all)
	}
	if n := Failing(); n["never"] != 1 {
		t.Errorf("failing are %v", n)
	}
	r.mu.Lock()
	r.fail["broken"] = 0
	r.mu.Unlock()
	eventually.Receive(t, "the key that was mended", c.Synced())
	if all := Failures(); len(all) != 0 {
		t.Errorf("failures after all has succeeded are %v", all)
	}
	if n, ok := Failing()["never"]; n != 0 || !ok {
		t.Error("the controller without failures is not reported as such")
	}
}

// TestWhatComesAfterTheContribution: keys call MarkSynced, and fail
// afterwards forever.
func TestWhatComesAfterTheContribution(t *testing.T) {
	var c *Controller
	c = New("test", func(_ context.Context, key string) error {
		c.MarkSynced(key)
		return errors.New("status cannot be written")
	})
	c.Seed(func() []string { return []string{"a", "b"} })
	run(t, c)
	eventually.Receive(t, "both keys", c.Synced())
	eventually.Receive(t, "both keys", c.Attempted())
}

// TestKeyThatHangs: a key keeps a worker busy forever.
func TestKeyThatHangs(t *testing.T) {
	r := newRecorder()
	c := New("hang", func(ctx context.Context, key string) error {
		if key == "hangs" {
			<-ctx.Done()
			return ctx.Err()
		}
		return r.reconcile(ctx, key)
	})
	c.stall = 50 * time.Millisecond
	c.Seed(func() []string { return []string{"hangs", "fast"} })
	run(t, c)
	eventually.Receive(t, "the end of the start, with a key that hangs", c.Attempted())
	eventually.True(t, "the key that hangs to be reported", func() bool { all := Failures(); return len(all) == 1 && all[0].Key == "hangs" })
	select {
	case <-c.Synced():
		t.Error("all have spoken, with a key that hangs")
	default:
	}
}

func TestNoSeedsAreSettledAtOnce(t *testing.T) {
	c := New("test", newRecorder().reconcile)
	run(t, c)
	eventually.Receive(t, "a controller without seeds", c.Attempted())
}

func TestWatchShowsWhatAnObjectWas(t *testing.T) {
	cs := fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}})
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
