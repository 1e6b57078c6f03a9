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

// flusher deletes connections whose translation is stale; waiting callers share
// one pass over the table.
type flusher struct {
	flush  func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error
	passes *host.Coalescer[error]
	// given returns those of some addresses that are used for other pods.
	given func(addrs []netip.Addr) map[netip.Addr]bool

	mu      sync.Mutex
	added   egressservice.Translations // the translations that connections must have
	expired egressservice.Translations // the translations that connections must not have any more
	// untrusted are the pods whose connections took another path since this node last saw them:
	// the outdated TCP windows in their entries would block them.
	untrusted map[netip.Addr]bool
}

func newFlusher(flush func(context.Context, func(src, to netip.Addr) bool, []netip.Addr) error,
	given func([]netip.Addr) map[netip.Addr]bool,
) *flusher {
	return &flusher{flush: flush, passes: host.NewCoalescer[error](), given: given,
		added: egressservice.Translations{}, expired: egressservice.Translations{}, untrusted: map[netip.Addr]bool{}}
}

// replaced flushes the connections of the given addresses that have another
// translation than the given one, and all connections of untrusted addresses.
func (f *flusher) replaced(ctx context.Context, now egressservice.Translations, untrusted map[netip.Addr]bool) error {
	return f.add(ctx, now, nil, untrusted)
}

// ended flushes the connections that still have the given translations.
func (f *flusher) ended(ctx context.Context, was egressservice.Translations) error {
	return f.add(ctx, nil, was, nil)
}

func (f *flusher) add(ctx context.Context, fresh, over egressservice.Translations, untrusted map[netip.Addr]bool) error {
	if len(fresh)+len(over)+len(untrusted) == 0 {
		return nil
	}
	f.mu.Lock()
	maps.Copy(f.added, fresh)
	maps.Copy(f.expired, over)
	maps.Copy(f.untrusted, untrusted)
	for addr := range fresh {
		delete(f.expired, addr)
	}
	f.mu.Unlock()
	failed, err := f.passes.Do(ctx, f.passes.Request(), f.pass)
	if err != nil {
		return err
	}
	return failed
}

func (f *flusher) pass(ctx context.Context) error {
	f.mu.Lock()
	fresh, over, untrusted := f.added, f.expired, f.untrusted
	f.added, f.expired, f.untrusted = egressservice.Translations{}, egressservice.Translations{}, map[netip.Addr]bool{}
	f.mu.Unlock()
	ended := slices.Compact(slices.SortedFunc(maps.Values(over), netip.Addr.Compare))
	given := f.given(ended)
	ended = slices.DeleteFunc(ended, func(a netip.Addr) bool { return given[a] })
	err := f.flush(ctx, func(src, to netip.Addr) bool {
		if untrusted[src] {
			return true
		}
		if want, ok := fresh[src]; ok {
			return to != want
		}
		was, ok := over[src]
		return ok && to == was
	}, ended)
	if err != nil {
		f.mu.Lock()
		for addr, to := range fresh {
			if _, newer := f.added[addr]; !newer {
				f.added[addr] = to
			}
		}
		maps.Copy(f.expired, over)
		maps.Copy(f.untrusted, untrusted)
		f.mu.Unlock()
	}
	return err
}
