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

// staleConntrack removes old connection tracking entries for addresses that this node is about
// to take. The connections continued elsewhere meanwhile, so their packets would no longer match
// the old entries and be dropped. Without the entries they continue.
type staleConntrack struct {
	delete func(ctx context.Context, addrs []netip.Addr) error
	passes *host.Coalescer[error]

	mu    sync.Mutex
	addrs map[netip.Addr]bool // to be removed by the next pass
}

func newStaleConntrack(del func(ctx context.Context, addrs []netip.Addr) error) *staleConntrack {
	return &staleConntrack{delete: del, passes: host.NewCoalescer[error](), addrs: map[netip.Addr]bool{}}
}

// forget returns once no entries remain. A pass reads whole tables: callers that
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
	err := p.delete(ctx, addrs)
	if err != nil { // a caller whose request this pass does not cover relies on the next one
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, a := range addrs {
			p.addrs[a] = true
		}
	}
	return err
}
