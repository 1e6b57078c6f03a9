package host

import (
	"context"
	"fmt"
	"sync"
)

// Coalescer serializes passes that read and write, and lets callers that waited share the pass that
// began after their request: a burst of requests costs two passes. No mutex is held over I/O, and a
// caller whose context ends stops waiting. R is the result of a pass.
type Coalescer[R any] struct {
	token chan struct{}

	mu        sync.Mutex
	requested uint64 // counts requests
	done      uint64 // the last request that a finished pass covers
	last      R      // result of that pass
}

// NewCoalescer returns an idle Coalescer.
func NewCoalescer[R any]() *Coalescer[R] {
	t := &Coalescer[R]{token: make(chan struct{}, 1)}
	t.token <- struct{}{}
	return t
}

// Request records that something has changed that a pass has to see. The number that it returns is
// then passed to Do.
func (t *Coalescer[R]) Request() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested++
	return t.requested
}

// Do waits for its turn and runs pass, unless a pass that began after request has finished in the
// meantime; then it returns the result of that pass. The error only concerns the waiting.
func (t *Coalescer[R]) Do(ctx context.Context, request uint64, pass func(context.Context) R) (R, error) {
	var none R
	select {
	case <-t.token:
	case <-ctx.Done():
		return none, fmt.Errorf("wait for the turn: %w", ctx.Err())
	}
	defer func() { t.token <- struct{}{} }()

	t.mu.Lock()
	requested, covered, last := t.requested, t.done >= request, t.last
	t.mu.Unlock()
	if covered {
		return last, nil
	}
	result := pass(ctx)
	if ctx.Err() != nil { // cut short by its own caller, it covers no other request
		return result, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done, t.last = requested, result
	return result, nil
}
