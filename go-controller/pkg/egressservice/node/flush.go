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
	// strange are those whose connections went another way since we saw them last:
	// what is known of their windows would stop them.
	strange map[netip.Addr]bool
}

func newFlusher(flush func(context.Context, func(src, to netip.Addr) bool, []netip.Addr) error) *flusher {
	return &flusher{flush: flush, turn: host.NewTurn[error](),
		fresh: egressservice.Translations{}, over: egressservice.Translations{}, strange: map[netip.Addr]bool{}}
}

// replaced flushes the connections of the given addresses that have another
// translation than the one given, and all of those that are strange.
func (f *flusher) replaced(ctx context.Context, now egressservice.Translations, strange map[netip.Addr]bool) error {
	return f.add(ctx, now, nil, strange)
}

// ended flushes the connections that still have the given translations.
func (f *flusher) ended(ctx context.Context, was egressservice.Translations) error {
	return f.add(ctx, nil, was, nil)
}

func (f *flusher) add(ctx context.Context, fresh, over egressservice.Translations, strange map[netip.Addr]bool) error {
	if len(fresh)+len(over)+len(strange) == 0 {
		return nil
	}
	f.mu.Lock()
	maps.Copy(f.fresh, fresh)
	maps.Copy(f.over, over)
	maps.Copy(f.strange, strange)
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
	fresh, over, strange := f.fresh, f.over, f.strange
	f.fresh, f.over, f.strange = egressservice.Translations{}, egressservice.Translations{}, map[netip.Addr]bool{}
	f.mu.Unlock()
	err := f.flush(ctx, func(src, to netip.Addr) bool {
		if strange[src] {
			return true
		}
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
		maps.Copy(f.strange, strange)
		f.mu.Unlock()
	}
	return err
}
