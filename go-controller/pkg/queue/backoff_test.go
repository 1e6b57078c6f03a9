package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoffEnds: however long a key has failed, it is retried twice a minute.
func TestBackoffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, last, longest := time.Now(), time.Now(), time.Duration(0)
		c := New("test", func(context.Context, string) error {
			longest, last = max(longest, time.Since(last)), time.Now()
			return errors.New("not yet")
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx, 1) }()
		c.Enqueue("a")
		<-time.After(2 * time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if longest > 30*time.Second || last.Sub(start) < time.Hour {
			t.Errorf("a key that fails was left alone for %s, and tried last after %s", longest, last.Sub(start))
		}
	})
}
