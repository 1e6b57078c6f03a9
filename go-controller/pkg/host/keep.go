package host

import (
	"context"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
)

// keepPause is how long Keep pauses after a failure, however often it is woken.
const keepPause = 500 * time.Millisecond

// Keep calls resync every interval, and immediately after each value on wake, until ctx ends.
// Failures, including panics, are passed to report; the next call tries again. wake may be nil.
// Drivers use Keep to keep the kernel in the desired state.
func Keep(ctx context.Context, interval time.Duration, wake <-chan struct{}, resync func(context.Context) error, report func(error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-wake:
		}
		err := panics.Catch("resync", func() error { return resync(ctx) })
		if err == nil || ctx.Err() != nil {
			continue
		}
		report(err)
		select {
		case <-ctx.Done():
		case <-time.After(keepPause):
		}
	}
}
