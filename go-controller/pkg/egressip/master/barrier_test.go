package master

import (
	"context"
	"sync"
	"time"
)

// barrier is a Barrier whose chassis can be stopped by a test.
type barrier struct {
	mu      sync.Mutex
	stopped map[string]bool
	changed chan struct{}
	waits   int
	asked   map[string]int
	lag     time.Duration // that everything takes to be applied
}

func (b *barrier) Counted() func(ctx context.Context, chassis string) error { return b.Written() }

func (b *barrier) Written() func(ctx context.Context, chassis string) error {
	b.mu.Lock()
	at := time.Now().Add(b.lag)
	b.mu.Unlock()
	return func(ctx context.Context, chassis string) error {
		if rest := time.Until(at); rest > 0 {
			select {
			case <-time.After(rest):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return b.wait(ctx, chassis)
	}
}

// lags sets how long everything that is written from now on takes to be applied.
func (b *barrier) lags(by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lag = by
}

func (b *barrier) wait(ctx context.Context, chassis string) error {
	b.mu.Lock()
	b.asked[chassis]++
	b.mu.Unlock()
	for {
		b.mu.Lock()
		stopped, changed := b.stopped[chassis] || b.stopped["all"], b.changed
		if !stopped {
			b.waits++
		}
		b.mu.Unlock()
		if !stopped {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *barrier) stop(chassis string, stopped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped[chassis] = stopped
	close(b.changed)
	b.changed = make(chan struct{})
}
