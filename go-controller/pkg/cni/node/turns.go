package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// errSuperseded is the cause if a waiting ADD ends because its sandbox is being deleted.
var errSuperseded = errors.New("the sandbox is being deleted")

// sandboxLocks allows one request at a time per sandbox.
type sandboxLocks struct {
	mu     sync.Mutex // guards active, never held over I/O
	active map[string]*sandboxRequest
}

type sandboxRequest struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

func newSandboxLocks() *sandboxLocks { return &sandboxLocks{active: map[string]*sandboxRequest{}} }

// begin waits for earlier requests for the same sandbox; with urge it ends them. The
// returned context ends when a later request urges. The returned function releases the
// sandbox.
func (t *sandboxLocks) begin(ctx context.Context, sandbox string, urge bool) (context.Context, func(), error) {
	for {
		t.mu.Lock()
		before := t.active[sandbox]
		if before == nil {
			inner, cancel := context.WithCancelCause(ctx)
			mine := &sandboxRequest{cancel: cancel, done: make(chan struct{})}
			t.active[sandbox] = mine
			t.mu.Unlock()
			return inner, func() {
				t.mu.Lock()
				delete(t.active, sandbox)
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
			return nil, nil, fmt.Errorf("wait for another request on sandbox %s: %w", sandbox, context.Cause(ctx))
		}
	}
}

// busy reports whether a request for a sandbox is in progress.
func (t *sandboxLocks) busy(sandbox string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.active[sandbox] != nil
}
