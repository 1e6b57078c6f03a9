package egressip

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// Members tracks which EgressIPs select each pod. If several do, the first one has it. It
// is safe for concurrent use; its answers depend only on the last Set of each pod.
type Members struct {
	mu    sync.Mutex
	pods  map[string]member
	byKey map[string]*membership
	// holders are the EgressIPs that have the pods with an address, by address and pod: for a moment, two pods may have one.
	holders map[netip.Addr]map[string]string
}

type member struct {
	keys  []string
	addrs []netip.Addr
}

// membership is the state of one EgressIP.
type membership struct {
	selected  map[string][]netip.Addr // addresses by pod
	conflicts map[string]string       // the EgressIP that has the pod, by pod
	// digests are the digests of its own pods, by the given addresses; cleared when the
	// pods change.
	digests map[string]string
}

// NewMembers returns Members without pods.
func NewMembers() *Members {
	return &Members{pods: map[string]member{}, byKey: map[string]*membership{}, holders: map[netip.Addr]map[string]string{}}
}

// Set sets the EgressIPs that select a pod, in order of precedence, and
// the pod's addresses. It returns the EgressIPs that this changes. A deleted pod
// has no keys.
func (m *Members) Set(pod string, keys []string, addrs []netip.Addr) (changed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.pods[pod]
	if slices.Equal(was.keys, keys) && slices.Equal(was.addrs, addrs) {
		return nil
	}
	for _, key := range was.keys {
		s := m.byKey[key]
		delete(s.selected, pod)
		delete(s.conflicts, pod)
		s.digests = nil
		if len(s.selected)+len(s.conflicts) == 0 {
			delete(m.byKey, key)
		}
	}
	for i, key := range keys {
		s := m.byKey[key]
		if s == nil {
			s = &membership{selected: map[string][]netip.Addr{}, conflicts: map[string]string{}}
			m.byKey[key] = s
		}
		if s.digests = nil; i == 0 {
			s.selected[pod] = slices.Clone(addrs)
		} else {
			s.conflicts[pod] = keys[0]
		}
	}
	for _, a := range was.addrs {
		if delete(m.holders[a], pod); len(m.holders[a]) == 0 {
			delete(m.holders, a)
		}
	}
	if len(keys) == 0 {
		delete(m.pods, pod)
	} else {
		m.pods[pod] = member{slices.Clone(keys), slices.Clone(addrs)}
		for _, a := range addrs {
			if m.holders[a] == nil {
				m.holders[a] = map[string]string{}
			}
			m.holders[a][pod] = keys[0]
		}
	}
	changed = append(slices.Clone(was.keys), keys...)
	slices.Sort(changed)
	return slices.Compact(changed)
}

// Holder returns the EgressIP that has the pod with an address; "" if none has.
func (m *Members) Holder(addr netip.Addr) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Max(append(slices.Collect(maps.Values(m.holders[addr])), ""))
}

// Selected returns the pods of an EgressIP, sorted.
func (m *Members) Selected(key string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.byKey[key]; s != nil {
		return slices.Sorted(maps.Keys(s.selected))
	}
	return nil
}

// Conflicts returns, sorted, the EgressIPs that have pods which key selects as well.
func (m *Members) Conflicts(key string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.byKey[key]; s != nil {
		return slices.Compact(slices.Sorted(maps.Values(s.conflicts)))
	}
	return nil
}

// Digest returns the Digest of an EgressIP's pods for the addresses given to a node.
func (m *Members) Digest(key string, given []netip.Addr) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.byKey[key]
	if s == nil {
		return Digest(given, nil)
	}
	name := fmt.Sprint(given)
	if digest, ok := s.digests[name]; ok {
		return digest
	}
	var pods []netip.Addr
	for _, addrs := range s.selected {
		pods = append(pods, addrs...)
	}
	if s.digests == nil {
		s.digests = map[string]string{}
	}
	s.digests[name] = Digest(given, pods)
	return s.digests[name]
}
