package noreroute

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// Union returns the addresses of a and b: while policies for both may exist, the set has
// both.
func Union(a, b []netip.Addr) []netip.Addr {
	all := slices.Clone(a)
	for _, addr := range b {
		if !slices.Contains(a, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// Follow declares that the set will be written to the database, followed by calls of
// Written. Without it Await does not wait.
func (p *PodSet) Follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followed = true
}

// Version returns the version of the set; later states have higher versions.
func (p *PodSet) Version() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version
}

// Written reports that the database has the set as of a version, and the policies that
// refer to it.
func (p *PodSet) Written(version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = max(p.written, version)
	close(p.progress)
	p.progress = make(chan struct{})
}

// Await waits until the database has everything that was added for some objects. Policies
// that reroute a pod must be written afterwards: before, they would reroute its traffic to
// nodes too.
func (p *PodSet) Await(ctx context.Context, objects ...string) error {
	for {
		missing, progress := p.missing(objects)
		if missing == "" {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("wait for the policies that exempt cluster traffic to include %s: %w", missing, ctx.Err())
		}
	}
}

// missing returns one of the objects whose addresses the database lacks, "" for none, and a
// channel that is closed when the result may have changed.
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
