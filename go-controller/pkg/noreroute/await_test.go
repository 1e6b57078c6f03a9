package noreroute

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAwait: Await waits until an object's added addresses, or a later state, are written;
// it does not wait for removed addresses, those of other objects, or a set that is not
// written at all.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPodSet()
		there := func(objects ...string) bool {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := p.Await(ctx, objects...)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return err == nil
		}
		p.Set("ns/a", addrs("10.244.0.5"))
		if !there("ns/a") {
			t.Error("there is somebody to wait for")
		}
		p.Follow()
		before := p.Version()
		p.Set("ns/b", addrs("10.244.0.6"))
		if there("ns/a") || there("ns/b", "ns/c") {
			t.Error("nothing has been written, and all is there")
		}
		p.Written(before)
		if !there("ns/a", "ns/c") || there("ns/b") || there("ns/a", "ns/b") {
			t.Error("what was written does not tell what is there")
		}
		waits := make(chan error, 1)
		go func() { waits <- p.Await(t.Context(), "ns/b") }()
		synctest.Wait()
		p.Written(p.Version())
		if err := <-waits; err != nil {
			t.Error(err)
		}
		p.Set("ns/b", addrs("10.244.0.6"))
		p.Set("ns/a", nil)
		p.MarkSynced()
		if !there("ns/a", "ns/b") {
			t.Error("nothing has been added since")
		}
		p.Set("ns/b", addrs("10.244.0.6 10.244.0.7"))
		p.Written(before)
		if there("ns/b") {
			t.Error("an earlier state has what was added later")
		}
	})
}

func TestUnion(t *testing.T) {
	if got := Union(addrs("fd00::2 10.244.0.2"), addrs("10.244.0.2 10.244.0.1")); !slices.Equal(got, addrs("fd00::2 10.244.0.2 10.244.0.1")) {
		t.Errorf("%v", got)
	}
}
