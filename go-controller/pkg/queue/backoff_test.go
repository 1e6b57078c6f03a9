package queue

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// TestBackoffOfAnOutage: what fails because the API server does not answer is tried again soon after it answers, however long that
// took.
func TestBackoffOfAnOutage(t *testing.T) {
	away := &url.Error{Op: "Patch", URL: "https://172.18.0.2:6443", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		err  error
		soon bool
	}{
		"away":      {fmt.Errorf("write the status: %w", away), true},
		"starting":  {apierrors.NewServiceUnavailable("starting"), true},
		"timeout":   {apierrors.NewTimeoutError("etcd", 1), true},
		"several":   {errors.Join(errors.New("another"), away), true},
		"forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", nil), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			over := time.Now().Add(2 * time.Minute)
			took := make(chan time.Duration, 1)
			ctrl := New("test", func(context.Context, string) error {
				if after := time.Since(over); after >= 0 {
					took <- after
					return nil
				}
				return c.err
			})
			ctrl.Enqueue("a")
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- ctrl.Run(ctx, 1) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			if got := <-took; (got <= outageBackoff) != c.soon {
				t.Errorf("%s: tried again after %s", name, got)
			}
		})
	}
}
