package node

import (
	"net/netip"
	"slices"

	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
)

// withoutContested removes the pods for which this node still has rules of another EgressService, which had them until
// now: those may take precedence. Until they are withdrawn, the pods are not acknowledged, so none is led here for s.
// The key is enqueued again then.
func (c *Controller) withoutContested(s egressservice.Service) egressservice.Service {
	host := c.role(s).Host
	if host != c.deps.Node && host != v1.HostAll {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	by := map[netip.Addr]string{}
	for _, e := range s.Endpoints {
		if host != c.deps.Node && e.Node != c.deps.Node {
			continue
		}
		if i := slices.IndexFunc(c.users[e.Addr], func(key string) bool { return key != s.Key }); i >= 0 {
			by[e.Addr] = c.users[e.Addr][i]
		}
	}
	if len(by) == 0 {
		return s
	}
	for _, key := range by {
		if !slices.Contains(c.awaiting[key], s.Key) {
			c.awaiting[key] = append(c.awaiting[key], s.Key)
		}
	}
	klog.V(2).InfoS("Pods have rules of other EgressServices until those are withdrawn", "egressService", s.Key, "pods", by)
	s.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), func(e egressservice.Endpoint) bool { return by[e.Addr] != "" })
	return s
}

// addrs returns the addresses of pods for which the kernel may have rules.
func (c contribution) addrs() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, translations := range []egressservice.Translations{c.translations, c.pending} {
		for a := range translations {
			all[a] = true
		}
	}
	for r := range c.ipRules {
		if r.Src.IsSingleIP() {
			all[r.Src.Addr()] = true
		}
	}
	return all
}

// reindex updates users, and enqueues the keys that wait for this one. c.mu is held.
func (c *Controller) reindex(key string, had, has contribution) {
	now := has.addrs()
	for a := range had.addrs() {
		if now[a] {
			continue
		}
		keys := slices.DeleteFunc(c.users[a], func(k string) bool { return k == key })
		if c.users[a] = keys; len(keys) == 0 {
			delete(c.users, a)
		}
	}
	for a := range now {
		if !slices.Contains(c.users[a], key) {
			c.users[a] = append(c.users[a], key)
		}
	}
	c.queue.Enqueue(c.awaiting[key]...)
	delete(c.awaiting, key)
}
