package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// errSuperseded is the cause if a waiting ADD ends because its sandbox is being deleted.
var errSuperseded = errors.New("the sandbox is being deleted")

// keyLocks allows one request at a time per key, which is a sandbox or a logical port.
type keyLocks struct {
	kind string // of the keys, for errors

	mu     sync.Mutex // guards active, never held over I/O
	active map[string]*keyRequest
}

type keyRequest struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

func newKeyLocks(kind string) *keyLocks {
	return &keyLocks{kind: kind, active: map[string]*keyRequest{}}
}

// begin waits for earlier requests for the same key; with urge it ends them. The
// returned context ends when a later request urges. The returned function releases the
// key.
func (t *keyLocks) begin(ctx context.Context, key string, urge bool) (context.Context, func(), error) {
	for {
		t.mu.Lock()
		before := t.active[key]
		if before == nil {
			inner, cancel := context.WithCancelCause(ctx)
			mine := &keyRequest{cancel: cancel, done: make(chan struct{})}
			t.active[key] = mine
			t.mu.Unlock()
			return inner, func() {
				t.mu.Lock()
				delete(t.active, key)
				t.mu.Unlock()
				cancel(nil)
				close(mine.done)
			}, nil
		}
		t.mu.Unlock()
		if urge {
			before.cancel(errSuperseded)
		}
		select {
		case <-before.done:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("wait for another request on %s %s: %w", t.kind, key, context.Cause(ctx))
		}
	}
}

// busy reports whether a request for a key is in progress.
func (t *keyLocks) busy(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.active[key] != nil
}
