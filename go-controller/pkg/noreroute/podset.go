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
	count    map[netip.Addr]int // how many objects select an address
	synced   bool
	// version is the version of the latest change, added the version at which an object
	// last got an address, and written the last version in the database; see Await.
	version, written uint64
	added            map[string]uint64
	followed         bool
	progress         chan struct{}
	changed          []func()
	moved            []func([]netip.Addr)
}

// NewPodSet returns an empty, incomplete set.
func NewPodSet() *PodSet {
	return &PodSet{byObject: map[string][]netip.Addr{}, count: map[netip.Addr]int{}, added: map[string]uint64{}, progress: make(chan struct{})}
}

// Subscribe adds a function that is called after a change. It must not block.
func (p *PodSet) Subscribe(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = append(p.changed, f)
}

// SubscribeAddrs adds a function that is called with added and removed addresses. It must
// not block.
func (p *PodSet) SubscribeAddrs(f func([]netip.Addr)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = append(p.moved, f)
}

// Has reports whether an object selects an address.
func (p *PodSet) Has(a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[a] > 0
}

// Complete reports whether the set is complete.
func (p *PodSet) Complete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.synced
}

// Set replaces the addresses that one object selects; none removes the object.
func (p *PodSet) Set(object string, addrs []netip.Addr) {
	var moved []netip.Addr
	p.update(func() bool {
		before := p.byObject[object]
		if slices.Equal(before, addrs) {
			return false
		}
		change := make(map[netip.Addr]int, len(before)+len(addrs))
		for _, a := range before {
			change[a]--
		}
		for _, a := range addrs {
			change[a]++
		}
		for a, by := range change {
			if by == 0 {
				continue
			}
			moved = append(moved, a)
			if p.count[a] += by; p.count[a] == 0 {
				delete(p.count, a)
			}
		}
		p.version++
		if len(addrs) == 0 {
			delete(p.byObject, object)
			delete(p.added, object)
			return true
		}
		p.byObject[object] = slices.Clone(addrs)
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !slices.Contains(before, a) }) {
			p.added[object] = p.version
		}
		return true
	})
	if len(moved) == 0 {
		return
	}
	p.mu.Lock()
	followers := p.moved
	p.mu.Unlock()
	for _, f := range followers {
		f(moved)
	}
}

// MarkSynced marks the set complete: every object has been set once since startup. Until
// then the absence of an address means nothing.
func (p *PodSet) MarkSynced() {
	p.update(func() bool {
		was := p.synced
		p.synced = true
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
	return addrs, p.synced
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
