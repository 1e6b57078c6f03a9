package node

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// flusher deletes connections whose translation is stale; callers that wait share
// one pass over the table.
type flusher struct {
	flush func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error
	turn  *host.Turn[error]

	mu    sync.Mutex
	fresh egressservice.Translations // what connections of these are to have
	over  egressservice.Translations // what they must not have any more
}

func newFlusher(flush func(context.Context, func(src, to netip.Addr) bool, []netip.Addr) error) *flusher {
	return &flusher{flush: flush, turn: host.NewTurn[error](),
		fresh: egressservice.Translations{}, over: egressservice.Translations{}}
}

// replaced flushes the connections of the given addresses that have another
// translation than the one given.
func (f *flusher) replaced(ctx context.Context, now egressservice.Translations) error {
	return f.add(ctx, now, nil)
}

// ended flushes the connections that still have the given translations.
func (f *flusher) ended(ctx context.Context, was egressservice.Translations) error {
	return f.add(ctx, nil, was)
}

func (f *flusher) add(ctx context.Context, fresh, over egressservice.Translations) error {
	if len(fresh)+len(over) == 0 {
		return nil
	}
	f.mu.Lock()
	maps.Copy(f.fresh, fresh)
	maps.Copy(f.over, over)
	for addr := range fresh {
		delete(f.over, addr)
	}
	f.mu.Unlock()
	failed, err := f.turn.Do(ctx, f.turn.Request(), f.pass)
	if err != nil {
		return err
	}
	return failed
}

func (f *flusher) pass(ctx context.Context) error {
	f.mu.Lock()
	fresh, over := f.fresh, f.over
	f.fresh, f.over = egressservice.Translations{}, egressservice.Translations{}
	f.mu.Unlock()
	err := f.flush(ctx, func(src, to netip.Addr) bool {
		if want, ok := fresh[src]; ok {
			return to != want
		}
		was, ok := over[src]
		return ok && to == was
	}, slices.Compact(slices.SortedFunc(maps.Values(over), netip.Addr.Compare)))
	if err != nil {
		f.mu.Lock()
		for addr, to := range fresh {
			if _, newer := f.fresh[addr]; !newer {
				f.fresh[addr] = to
			}
		}
		maps.Copy(f.over, over)
		f.mu.Unlock()
	}
	return err
}
