package noreroute

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// Union returns a and what b has beside it: while policies of both may be there, the
// set has both.
func Union(a, b []netip.Addr) []netip.Addr {
	all := slices.Clone(a)
	for _, addr := range b {
		if !slices.Contains(a, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// Follow says that somebody writes the set to the database and calls Written. Only then
// is there anything to wait for.
func (p *PodSet) Follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followed = true
}

// Version numbers the state of the set; a later one is higher.
func (p *PodSet) Version() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version
}

// Written says that the database has the set as it was at a version, and the policies
// that look at it.
func (p *PodSet) Written(version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = max(p.written, version)
	close(p.progress)
	p.progress = make(chan struct{})
}

// Await waits until the database has all that was added for some objects. What leads
// a pod away is written then: before, it would lead away what the pod has for nodes too.
func (p *PodSet) Await(ctx context.Context, objects ...string) error {
	for {
		missing, progress := p.missing(objects)
		if missing == "" {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("wait for the policies that keep pods' traffic inside to know of %s: %w", missing, ctx.Err())
		}
	}
}

// missing returns one of the objects whose addresses the database lacks, "" for none,
// and what is closed when it is worth to ask again.
func (p *PodSet) missing(objects []string) (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range objects {
		if p.followed && p.added[o] > p.written {
			return o, p.progress
		}
	}
	return "", nil
}
