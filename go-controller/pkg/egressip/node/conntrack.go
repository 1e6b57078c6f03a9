package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// staleConntrack is what the node remembers, from an earlier time, of connections with
// addresses that it is about to take: they went on elsewhere meanwhile, and what they
// send would not fit any more and be dropped. As if they were unknown, they go on.
type staleConntrack struct {
	delete func(ctx context.Context, addrs []netip.Addr) error
	passes *host.Coalescer[error]

	mu    sync.Mutex
	addrs map[netip.Addr]bool // to be forgotten by the next pass
}

func newStaleConntrack(del func(ctx context.Context, addrs []netip.Addr) error) *staleConntrack {
	return &staleConntrack{delete: del, passes: host.NewCoalescer[error](), addrs: map[netip.Addr]bool{}}
}

// forget returns when nothing is remembered. A pass reads whole tables: callers that
// waited share one.
func (p *staleConntrack) forget(ctx context.Context, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	p.mu.Lock()
	for _, a := range addrs {
		p.addrs[a] = true
	}
	p.mu.Unlock()
	failed, err := p.passes.Do(ctx, p.passes.Request(), p.pass)
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("forget connections with %v: %w", addrs, err)
	}
	return nil
}

func (p *staleConntrack) pass(ctx context.Context) error {
	p.mu.Lock()
	addrs := slices.SortedFunc(maps.Keys(p.addrs), netip.Addr.Compare)
	clear(p.addrs)
	p.mu.Unlock()
	return p.delete(ctx, addrs)
}
