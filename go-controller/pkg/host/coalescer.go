package host

import (
	"context"
	"fmt"
	"sync"
)

// Coalescer lets one caller at a time read and write, and lets callers that waited
// share the pass that began after they asked: a storm of requests costs two
// passes. No mutex is held over I/O, and a caller whose context ends stops
// waiting. R is what a pass results in.
type Coalescer[R any] struct {
	token chan struct{}

	mu    sync.Mutex
	asked uint64 // counts requests
	done  uint64 // the last request that a finished pass has covered
	last  R      // result of that pass
}

// NewCoalescer returns a Turn nobody has.
func NewCoalescer[R any]() *Coalescer[R] {
	t := &Coalescer[R]{token: make(chan struct{}, 1)}
	t.token <- struct{}{}
	return t
}

// Request says that something was changed that a pass has to see. Do is then
// called with the number it returns.
func (t *Coalescer[R]) Request() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked++
	return t.asked
}

// Do waits for the turn and runs pass, unless a pass that began after request
// has finished meanwhile: then it returns that one's result. The error is that
// of waiting only.
func (t *Coalescer[R]) Do(ctx context.Context, request uint64, pass func(context.Context) R) (R, error) {
	var none R
	select {
	case <-t.token:
	case <-ctx.Done():
		return none, fmt.Errorf("wait for the turn: %w", ctx.Err())
	}
	defer func() { t.token <- struct{}{} }()

	t.mu.Lock()
	asked, covered, last := t.asked, t.done >= request, t.last
	t.mu.Unlock()
	if covered {
		return last, nil
	}
	result := pass(ctx)
	if ctx.Err() != nil { // cut short by its caller, it covers nobody else
		return result, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done, t.last = asked, result
	return result, nil
}
