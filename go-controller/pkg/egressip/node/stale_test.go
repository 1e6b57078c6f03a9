package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
)

// TestForgetAfterFailure: the entries of an address are deleted even if the pass that was to delete them, together
// with those of another caller, was cut short with that caller.
func TestForgetAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := netip.MustParseAddr("10.10.10.5"), netip.MustParseAddr("10.10.10.6"), netip.MustParseAddr("10.10.10.7")
		var deleted []netip.Addr
		answers := make(chan error)
		p := newStaleConntrack(func(_ context.Context, addrs []netip.Addr) error {
			err := <-answers
			if err == nil {
				deleted = append(deleted, addrs...)
			}
			return err
		})
		ending, end := context.WithCancel(t.Context())
		var results []chan error
		for _, caller := range []struct {
			ctx  context.Context
			addr netip.Addr
		}{{t.Context(), a}, {ending, b}, {t.Context(), c}} {
			result := make(chan error, 1)
			results = append(results, result)
			go func() { result <- p.forget(caller.ctx, []netip.Addr{caller.addr}) }()
			synctest.Wait() // the callers wait for their turn in this order
		}
		answers <- nil
		synctest.Wait()
		end()
		answers <- errors.New("interrupted")
		answers <- nil
		for i, failed := range []bool{false, true, false} {
			if err := <-results[i]; (err != nil) != failed {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		for _, addr := range []netip.Addr{a, c} {
			if !slices.Contains(deleted, addr) {
				t.Errorf("entries of %s remain, deleted are those of %v", addr, deleted)
			}
		}
	})
}
