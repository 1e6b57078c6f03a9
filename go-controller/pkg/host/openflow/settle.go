package openflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// settleTimeout bounds Settle. Revalidating all flows of the datapath takes milliseconds on an idle node, and ovs-vswitchd
// keeps fewer flows if it takes longer than two seconds.
const settleTimeout = 30 * time.Second

// Settle waits until no packet uses flows that were replaced before the call: the datapath caches
// flows until ovs-vswitchd revalidates them, which takes longer the busier the node is.
func (w *Writer) Settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	// When ovs-vswitchd answers the first time, it has noticed that flows were replaced before the call. The revalidation
	// that ends next may have begun before that, but not the one after it.
	for range 3 {
		if err := w.revalidate(ctx); err != nil {
			return fmt.Errorf("wait for the datapath of bridge %s: %w", w.bridge, err)
		}
	}
	return nil
}

// revalidate makes ovs-vswitchd revalidate the flows of the datapath, and waits until it has. It would
// do so by itself, but only every half second.
func (w *Writer) revalidate(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- w.vswitchd.AwaitRevalidation(ctx) }()
	w.mu.Lock()
	w.again = true
	w.mu.Unlock()
	return errors.Join(w.turn(ctx), <-done)
}

// writeAgain writes a flow that the bridge has, if asked for. It changes nothing, but ovs-vswitchd
// revalidates the flows of the datapath.
func (w *Writer) writeAgain(ctx context.Context) error {
	w.mu.Lock()
	again, pending := w.again, w.anew || len(w.changed) > 0
	w.again = false
	var flows []host.Flow
	if again && !pending { // otherwise the next pass changes something
		flows = w.union()
	}
	w.mu.Unlock()
	if len(flows) == 0 {
		return nil
	}
	w.own.expect(1)
	if _, err := w.ofctl(ctx, line(flows[0]), "add-flows", w.target, "-"); err != nil {
		w.own.expect(0)
		return err
	}
	return nil
}
