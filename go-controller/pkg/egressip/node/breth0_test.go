package node

import (
	"context"
	"errors"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
)

// breth0 is the flow manager of the world.
type breth0 struct {
	*hostfake.Flows
	w *world
	// gate, if set, blocks Apply and Change until it is closed.
	gate chan struct{}
	// incomplete says that the flows are not installed yet.
	mu         sync.Mutex
	incomplete bool
	err        error // returned by Apply, which keeps the flows to be written later
	errs       int   // how often it was returned
	// effective are the flows at the time of the last Settle: packets may use older ones.
	effective string
	unsettled error  // returned by Settle
	waits     int    // how often it was returned
	settling  func() // called once by Settle
}

// fail makes Apply return err.
func (b *breth0) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// failed returns how often Apply failed.
func (b *breth0) failed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errs
}

func (b *breth0) Synced() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.incomplete
}

// complete has the flows of all contributors installed.
func (b *breth0) complete() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.incomplete = false
}

// block makes Apply and Change wait until the returned function is called, at the latest until the test ends.
func (b *breth0) block() (unblock func()) {
	gate := make(chan struct{})
	unblock = sync.OnceFunc(func() { close(gate) })
	b.w.t.Cleanup(unblock)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = gate
	return unblock
}

// Settle makes the flows effective, unless unsettle was called.
func (b *breth0) Settle(context.Context) error {
	b.mu.Lock()
	settling := b.settling
	b.settling = nil
	b.mu.Unlock()
	if settling != nil {
		settling()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unsettled != nil {
		b.waits++
		return b.unsettled
	}
	b.effective = b.Dump()
	return nil
}

// unsettle makes Settle return err.
func (b *breth0) unsettle(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsettled = err
}

// settled reports whether Settle was called after the last change.
func (b *breth0) settled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.effective == b.Dump()
}

// waited returns how often Settle failed.
func (b *breth0) waited() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waits
}

func (b *breth0) Apply(ctx context.Context, contributor string, flows []host.Flow) error {
	b.pass()
	before := b.Dump()
	err := b.Flows.Apply(ctx, contributor, flows)
	if b.Dump() != before {
		b.w.note("flows")
	}
	return errors.Join(err, b.outcome())
}

// outcome returns the result of Apply and Change.
func (b *breth0) outcome() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		b.errs++
	}
	return b.err
}

// pass waits until the gate is open.
func (b *breth0) pass() {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// Change implements Flows.
func (b *breth0) Change(ctx context.Context, contributor string, remove, add []host.Flow) error {
	b.pass()
	err := b.Flows.Change(ctx, contributor, remove, add)
	b.w.note("flows")
	return errors.Join(err, b.outcome())
}
