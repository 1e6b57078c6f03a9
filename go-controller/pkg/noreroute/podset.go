package noreroute

import (
	"net/netip"
	"slices"
	"sync"
)

// PodSet collects the addresses of a feature's pods from the objects that select
// them. It is safe for concurrent use.
type PodSet struct {
	mu       sync.Mutex
	byObject map[string][]netip.Addr
	complete bool
	changed  []func()
}

// NewPodSet returns an empty set that is not complete.
func NewPodSet() *PodSet { return &PodSet{byObject: map[string][]netip.Addr{}} }

// Subscribe adds a function that is called after a change. It must not block.
func (p *PodSet) Subscribe(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = append(p.changed, f)
}

// Set replaces the addresses that one object selects; none removes the object.
func (p *PodSet) Set(object string, addrs []netip.Addr) {
	p.update(func() bool {
		if slices.Equal(p.byObject[object], addrs) {
			return false
		}
		if len(addrs) == 0 {
			delete(p.byObject, object)
		} else {
			p.byObject[object] = slices.Clone(addrs)
		}
		return true
	})
}

// Complete says that every object has spoken once since the start. Until then
// absence means nothing.
func (p *PodSet) Complete() {
	p.update(func() bool {
		was := p.complete
		p.complete = true
		return !was
	})
}

// Addrs returns all addresses, possibly repeated, and whether the set is complete.
func (p *PodSet) Addrs() (addrs []netip.Addr, complete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.byObject {
		addrs = append(addrs, a...)
	}
	return addrs, p.complete
}

func (p *PodSet) update(f func() bool) {
	p.mu.Lock()
	var notify []func()
	if f() {
		notify = p.changed
	}
	p.mu.Unlock()
	for _, n := range notify {
		n()
	}
}
