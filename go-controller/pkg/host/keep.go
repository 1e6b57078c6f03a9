package host

import (
	"context"
	"time"
)

// Keep calls resync every interval, and soon after each value on wake, until ctx
// ends. Failures go to report, and what failed is tried again at the next turn.
// wake may be nil. Drivers keep the kernel as wanted by it.
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
		if err := resync(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}
