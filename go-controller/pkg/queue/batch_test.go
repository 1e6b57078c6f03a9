package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// batches records the batches, and lets tests wait for them.
type batches struct {
	mu    sync.Mutex
	sizes []int
	*recorder
}

func (b *batches) reconcile(ctx context.Context, keys []string) map[string]error {
	b.mu.Lock()
	b.sizes = append(b.sizes, len(keys))
	b.mu.Unlock()
	errs := map[string]error{}
	for _, k := range keys {
		if err := b.recorder.reconcile(ctx, k); err != nil {
			errs[k] = err
		}
	}
	return errs
}

func (b *batches) seen() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sizes)
}

func (b *batches) tried(key string) int {
	b.recorder.mu.Lock()
	defer b.recorder.mu.Unlock()
	return b.count[key]
}

func numbered(prefix string, n int) []string {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

func TestKeysEnqueuedTogetherAreReconciledTogether(t *testing.T) {
	b := &batches{recorder: newRecorder()}
	c := NewBatch("test", 100, b.reconcile)
	c.Seed(func() []string { return numbered("seed", 70) })
	run(t, c)
	eventually.Receive(t, "the start-up keys", c.Attempted())
	c.Enqueue(numbered("key", 250)...)
	b.waitFor(t, "every key once", func(n map[string]int) bool { return len(n) == 320 })
	sizes := b.seen()
	slices.Sort(sizes)
	if want := []int{50, 70, 100, 100}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v keys, want %v", sizes, want)
	}
	for k, n := range b.count {
		if n != 1 {
			t.Errorf("%s was reconciled %d times", k, n)
		}
	}
}

func TestOneOfABatchFails(t *testing.T) {
	b := &batches{recorder: newRecorder()}
	b.fail["key3"] = 2
	c := NewBatch("test", 100, b.reconcile)
	c.Seed(func() []string { return numbered("key", 10) })
	run(t, c)
	eventually.Receive(t, "the start-up keys", c.Synced())
	if sizes := b.seen(); !slices.Equal(sizes, []int{10, 1, 1}) {
		t.Errorf("batches of %v keys, want all, and then the one that failed", sizes)
	}
}

// TestKeyAloneWaitsForNoBatch enqueues a key while a batch is being reconciled, and
// keys of that batch, which wait for its end and form one batch again.
func TestKeyAloneWaitsForNoBatch(t *testing.T) {
	r := newRecorder()
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	again := make(chan []string, 10)
	c := NewBatch("test", 100, func(ctx context.Context, keys []string) map[string]error {
		first := false
		once.Do(func() { first = true })
		if first {
			close(begun)
			<-end
		} else {
			again <- keys
		}
		errs := map[string]error{}
		for _, k := range keys {
			if err := r.reconcile(ctx, k); err != nil {
				errs[k] = err
			}
		}
		return errs
	})
	run(t, c)
	c.Enqueue(numbered("key", 80)...)
	<-begun
	c.Enqueue("alone")
	r.waitFor(t, "the key that came alone", func(n map[string]int) bool { return n["alone"] == 1 && len(n) == 1 })
	<-again
	c.Enqueue(numbered("key", 40)...)
	close(end)
	if keys := <-again; len(keys) != 40 {
		t.Errorf("%d keys came back together, want 40", len(keys))
	}
	r.waitFor(t, "all", func(n map[string]int) bool { return len(n) == 81 && n["key0"] == 2 && n["key79"] == 1 })
}
