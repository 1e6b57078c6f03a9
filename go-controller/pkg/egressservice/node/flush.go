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
	flush func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error
	// flushLed deletes the connections of newly led pods that have the address of another link.
	flushLed func(ctx context.Context, pods map[netip.Addr]bool) error
	passes   *host.Coalescer[error]
	// inUse returns those of some translations that are in use, and the addresses of them that are.
	inUse func(some map[translation]bool) (made map[translation]bool, given map[netip.Addr]bool)

	mu      sync.Mutex
	added   egressservice.Translations // the translations that connections must have
	expired map[translation]bool       // the translations that have ended, unless they are in use again
	// untrusted are the pods whose connections took another path since this node last saw them:
	// the outdated TCP windows in their entries would block them.
	untrusted map[netip.Addr]bool
	led       map[netip.Addr]bool // the pods that are newly led into a network without a translation
}

// translation is the address that one pod is translated to. Several may have ended at the same time, and another one may
// be in use.
type translation struct{ addr, to netip.Addr }

func newFlusher(flush func(context.Context, func(src, to netip.Addr) bool, []netip.Addr) error, flushLed func(context.Context, map[netip.Addr]bool) error,
	inUse func(map[translation]bool) (map[translation]bool, map[netip.Addr]bool),
) *flusher {
	return &flusher{flush: flush, flushLed: flushLed, passes: host.NewCoalescer[error](), inUse: inUse,
		added: egressservice.Translations{}, expired: map[translation]bool{}, untrusted: map[netip.Addr]bool{}, led: map[netip.Addr]bool{}}
}

// replaced flushes the connections of the given addresses that have another
// translation than the given one, all connections of untrusted addresses, and those of newly led pods that
// have the address of another link.
func (f *flusher) replaced(ctx context.Context, now egressservice.Translations, untrusted, led map[netip.Addr]bool) error {
	return f.add(ctx, now, nil, untrusted, led)
}

// ended flushes the connections that still have the given translations. Those that are in use for another
// EgressService have not ended.
func (f *flusher) ended(ctx context.Context, was map[translation]bool) error {
	return f.add(ctx, nil, was, nil, nil)
}

func (f *flusher) add(ctx context.Context, fresh egressservice.Translations, over map[translation]bool, untrusted, led map[netip.Addr]bool) error {
	if len(fresh)+len(over)+len(untrusted)+len(led) == 0 {
		return nil
	}
	f.mu.Lock()
	maps.Copy(f.added, fresh)
	maps.Copy(f.expired, over)
	maps.Copy(f.untrusted, untrusted)
	maps.Copy(f.led, led)
	f.mu.Unlock()
	failed, err := f.passes.Do(ctx, f.passes.Request(), f.pass)
	if err != nil {
		return err
	}
	return failed
}

func (f *flusher) pass(ctx context.Context) error {
	f.mu.Lock()
	fresh, over, untrusted, led := f.added, f.expired, f.untrusted, f.led
	f.added, f.expired, f.untrusted, f.led = egressservice.Translations{}, map[translation]bool{}, map[netip.Addr]bool{}, map[netip.Addr]bool{}
	f.mu.Unlock()
	some := maps.Clone(over)
	for addr, to := range fresh {
		some[translation{addr, to}] = true
	}
	made, given := f.inUse(some)
	maps.DeleteFunc(over, func(t translation, _ bool) bool { return made[t] })
	// Of a write that failed and is not wanted any more.
	maps.DeleteFunc(fresh, func(addr, to netip.Addr) bool { return !made[translation{addr, to}] })
	ended := map[netip.Addr]bool{}
	for t := range over {
		if !given[t.to] {
			ended[t.to] = true
		}
	}
	err := f.flush(ctx, func(src, to netip.Addr) bool {
		if untrusted[src] {
			return true
		}
		if want, ok := fresh[src]; ok {
			return to != want
		}
		return over[translation{src, to}]
	}, slices.SortedFunc(maps.Keys(ended), netip.Addr.Compare))
	if err == nil {
		err = f.flushLed(ctx, led)
	}
	if err != nil {
		f.mu.Lock()
		for addr, to := range fresh {
			if _, newer := f.added[addr]; !newer {
				f.added[addr] = to
			}
		}
		maps.Copy(f.expired, over)
		maps.Copy(f.untrusted, untrusted)
		maps.Copy(f.led, led)
		f.mu.Unlock()
	}
	return err
}

// inUse returns those of some translations that this node makes for any EgressService, or is about to, and those of
// their addresses that it translates any pods to.
func (c *Controller) inUse(some map[translation]bool) (made map[translation]bool, given map[netip.Addr]bool) {
	made, given = map[translation]bool{}, map[netip.Addr]bool{}
	if len(some) == 0 {
		return made, given
	}
	addrs := map[netip.Addr]bool{}
	for t := range some {
		addrs[t.to] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, has := range c.contributed {
		for _, translations := range []egressservice.Translations{has.translations, has.pending} {
			for addr, to := range translations {
				if !addrs[to] {
					continue
				}
				given[to] = true
				if t := (translation{addr, to}); some[t] {
					made[t] = true
				}
			}
		}
	}
	return made, given
}
