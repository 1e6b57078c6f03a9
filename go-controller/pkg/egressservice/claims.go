package egressservice

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Claims tracks which EgressServices select each pod. If several do, the oldest
// one has it. It is safe for concurrent use; its answers depend only on the last Set of
// each EgressService.
type Claims struct {
	mu     sync.Mutex
	byAddr map[netip.Addr][]claimant // in order of precedence
	byKey  map[string][]netip.Addr
}

type claimant struct {
	created time.Time
	key     string
}

func (c claimant) compare(o claimant) int {
	return cmp.Or(c.created.Compare(o.created), cmp.Compare(c.key, o.key))
}

// NewClaims returns Claims without EgressServices.
func NewClaims() *Claims {
	return &Claims{byAddr: map[netip.Addr][]claimant{}, byKey: map[string][]netip.Addr{}}
}

// Set stores the pods that s selects, and returns the other EgressServices that may be
// affected by a change. A refused Service selects nothing.
func (c *Claims) Set(s Service) (others []string) {
	var addrs []netip.Addr // sorted
	if s.Refused == (Refusal{}) {
		for _, e := range s.Endpoints {
			addrs = append(addrs, e.Addr)
		}
		if len(s.Awaited) > 0 {
			addrs = append(addrs, s.Awaited...)
			slices.SortFunc(addrs, netip.Addr.Compare)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	me := claimant{s.Created, s.Key}
	concern := func(a netip.Addr) {
		for _, o := range c.byAddr[a] {
			if o.key != s.Key && !slices.Contains(others, o.key) {
				others = append(others, o.key)
			}
		}
	}
	for _, a := range c.byKey[s.Key] {
		if i := slices.IndexFunc(c.byAddr[a], func(o claimant) bool { return o.key == s.Key }); i >= 0 {
			if _, still := slices.BinarySearchFunc(addrs, a, netip.Addr.Compare); still && c.byAddr[a][i] == me {
				continue
			}
			c.byAddr[a] = slices.Delete(c.byAddr[a], i, i+1)
		}
		concern(a)
		if len(c.byAddr[a]) == 0 {
			delete(c.byAddr, a)
		}
	}
	for _, a := range addrs {
		i, found := slices.BinarySearchFunc(c.byAddr[a], me, claimant.compare)
		if found {
			continue
		}
		concern(a)
		c.byAddr[a] = slices.Insert(c.byAddr[a], i, me)
	}
	if len(addrs) == 0 {
		delete(c.byKey, s.Key)
	} else {
		c.byKey[s.Key] = addrs
	}
	return others
}

// Forget removes a deleted EgressService, and returns what Set returns.
func (c *Claims) Forget(key string) (others []string) { return c.Set(Service{Key: key}) }

// Resolve returns s with only its own endpoints, and with the EgressServices that have
// the others in Conflicts.
func (c *Claims) Resolve(s Service) Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Conflicts = nil
	s.Endpoints = own(s.Endpoints, func(e Endpoint) bool { return c.has(&s, e.Addr) })
	s.Awaited = own(s.Awaited, func(a netip.Addr) bool { return c.has(&s, a) })
	slices.Sort(s.Conflicts)
	return s
}

// has reports whether s has a pod, and if not records in s which EgressService has it; c.mu is held.
func (c *Claims) has(s *Service, a netip.Addr) bool {
	by := c.byAddr[a]
	if len(by) == 0 || by[0].key == s.Key {
		return true
	}
	if !slices.Contains(s.Conflicts, by[0].key) {
		s.Conflicts = append(s.Conflicts, by[0].key)
	}
	return false
}

// own returns the elements to keep. It does not modify all, and returns all itself if every element is kept, the usual case.
func own[T any](all []T, keep func(T) bool) []T {
	for i, v := range all {
		if keep(v) {
			continue
		}
		kept := slices.Clone(all[:i])
		for _, v := range all[i+1:] {
			if keep(v) {
				kept = append(kept, v)
			}
		}
		return kept
	}
	return all
}
