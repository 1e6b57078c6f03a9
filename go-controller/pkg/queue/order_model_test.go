package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// TestOrder: whatever is done to an order, no key is lost or returned twice, an urgent one comes first,
// and each group is in the order in which its keys arrived.
func TestOrder(t *testing.T) {
	seeds.Each(t, 50, func(t *testing.T, rng *rand.Rand) {
		urgent := map[string]bool{}
		o := &order{urgent: func(key string) bool { return urgent[key] }}
		var first, rest []string // what waits, as a plain model
		for range 500 {
			key := fmt.Sprint(rng.IntN(20))
			urgent[key] = rng.IntN(3) == 0
			waiting := slices.Contains(first, key) || slices.Contains(rest, key)
			switch {
			case rng.IntN(3) == 0 && len(first)+len(rest) > 0:
				from := &rest
				if len(first) > 0 {
					from = &first
				}
				if got := o.Pop(); got != (*from)[0] {
					t.Fatalf("got %s, want %s: %v, %v", got, (*from)[0], first, rest)
				}
				*from = (*from)[1:]
			case waiting:
				o.Touch(key)
				if i := slices.Index(rest, key); i >= 0 && urgent[key] {
					rest, first = slices.Delete(rest, i, i+1), append(first, key)
				}
			default:
				o.Push(key)
				if urgent[key] {
					first = append(first, key)
				} else {
					rest = append(rest, key)
				}
			}
			if got, want := o.Len(), len(first)+len(rest); got != want {
				t.Fatalf("%d keys, want %d", got, want)
			}
		}
	})
}

// BenchmarkTouch enqueues an urgent key again while others wait.
func BenchmarkTouch(b *testing.B) {
	for _, n := range []int{100, 50000} {
		b.Run(fmt.Sprintf("of=%d", n), func(b *testing.B) {
			o := &order{urgent: func(key string) bool { return key == "urgent" }}
			for i := range n {
				o.Push(fmt.Sprint(i))
			}
			o.Push("urgent")
			for b.Loop() {
				o.Touch("urgent")
			}
		})
	}
}
