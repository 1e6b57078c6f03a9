package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestPrefer: keys that are urgent when they are enqueued precede all others, including when they are
// waiting already.
func TestPrefer(t *testing.T) {
	var mu sync.Mutex
	urgent, got := map[string]bool{"b": true}, []string{}
	c := NewBatch("test", 2, func(_ context.Context, keys []string) map[string]error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(keys))
		return nil
	})
	c.Prefer(func(key string) bool {
		mu.Lock()
		defer mu.Unlock()
		return urgent[key]
	})
	c.Enqueue("a", "b", "c", "d")
	mu.Lock()
	urgent["d"] = true
	mu.Unlock()
	c.Enqueue("a", "b", "d")
	go func() { _ = c.Run(t.Context(), 1) }()
	eventually.True(t, "the keys", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(got, []string{"[b d]", "[a c]"})
	})
}
