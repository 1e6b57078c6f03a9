package host

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

// handOnTTL is the time to live of packets that are handed on. A packet that comes back, since the other node does not
// know the connection either, has a lower one by then, or after it was handed on once more, and goes no further.
const handOnTTL = 8

// HandOn returns the rules that hand the packets to an address that s matches on to a neighbor, which gets a copy.
func (s Spec) HandOn(neighbor netip.Addr) []Rule {
	limit, pass := s, s
	limit.TTLAbove, limit.Target = handOnTTL, SetTTL(s.Dst.Addr(), handOnTTL)
	pass.TTL, pass.Target = handOnTTL, CopyTo(neighbor)
	return []Rule{limit.Rule(), pass.Rule()}
}

// OptionalRetry is how long no optional rules are written after some were refused: a kernel that lacks a match or target
// refuses them each time, and finding out whose rules are refused delays those of others.
const OptionalRetry = 10 * time.Minute

// Optional writes rules that not every kernel accepts. The zero value is ready for use.
type Optional struct {
	mu   sync.Mutex
	from time.Time // when such rules are written again
}

// Apply writes with, or, if the kernel refuses these or has refused others a short time before, without. The
// first result says whether with was written, and the second one why it was refused if it was just now.
func (o *Optional) Apply(ctx context.Context, w ChainWriter, contributor string, with, without Rules, now time.Time) (bool, error, error) {
	o.mu.Lock()
	paused := now.Before(o.from)
	o.mu.Unlock()
	var refused error
	if !paused {
		if refused = w.Apply(ctx, contributor, with); refused == nil {
			return true, nil, nil
		}
		if ctx.Err() != nil { // the write was given up, which says nothing about the kernel
			return false, nil, errors.Join(refused, w.Apply(ctx, contributor, without))
		}
		o.mu.Lock()
		o.from = now.Add(OptionalRetry)
		o.mu.Unlock()
	}
	return false, refused, w.Apply(ctx, contributor, without)
}
