package master

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Egress features may keep rows with the addresses of a deleted pod for a while. Until these are gone, the pod keeps its
// addresses: they would steer the traffic of another pod that had one of them.

// uses reports whether egress features may still use the addresses of a holder whose port is removed. If so, unused or unmatched
// enqueues its pod when that ends.
func (c *Controller) uses(h pod.Holder) bool {
	c.setUsed(h, true) // before asking, so that unused and unmatched find it
	if c.inRows(h) {
		return true
	}
	c.setUsed(h, false)
	return false
}

// inRows reports whether any egress feature uses an address of a holder.
func (c *Controller) inRows(h pod.Holder) bool {
	addrs := c.alloc.Addrs(h)
	if c.Egress != nil && c.Egress.Uses(h.Key, addrs) {
		return true
	}
	return slices.ContainsFunc(c.Matched, func(m Matched) bool { return slices.ContainsFunc(addrs, m.Has) })
}

func (c *Controller) setUsed(h pod.Holder, used bool) {
	addrs := c.alloc.Addrs(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used[h] = used; !used {
		delete(c.used, h)
	}
	for _, a := range addrs {
		if c.usedAt[a] = h; !used {
			delete(c.usedAt, a)
		}
	}
}

func (c *Controller) isUsed(h pod.Holder) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used[h]
}

// unused enqueues a pod if egress features no longer use the addresses of one of its incarnations.
func (c *Controller) unused(key string) {
	if slices.ContainsFunc(c.alloc.Others(pod.Holder{Key: key}), func(h pod.Holder) bool { return c.isUsed(h) && !c.inRows(h) }) {
		c.queue.Enqueue(key)
	}
}

// unmatched is unused for the holders of addresses.
func (c *Controller) unmatched(addrs []netip.Addr) {
	var keys []string
	c.mu.Lock()
	for _, a := range addrs {
		if h, ok := c.usedAt[a]; ok && !slices.Contains(keys, h.Key) {
			keys = append(keys, h.Key)
		}
	}
	c.mu.Unlock()
	for _, key := range keys {
		c.unused(key)
	}
}

// portRemoved reports whether the port of a pod's incarnations other than except is removed, and this has been reported: the
// port that exists is that of except, or there is none and only egress features still use their addresses.
func (c *Controller) portRemoved(except pod.Holder) bool {
	rows := c.Writer.Rows(pod.Owner(except.Key))
	if len(rows) > 0 {
		given, ok := pod.AddressesIn(rows)
		return ok && except.UID != "" && given.UID == except.UID
	}
	others := c.alloc.Others(except)
	return len(others) > 0 && !slices.ContainsFunc(others, func(h pod.Holder) bool { return !c.isUsed(h) })
}

// reserveFormer reserves the addresses of those pods, and former pods, for which no node's subnets have them. If they are on a
// node that is gone, another one may get its subnet, now or later. owners are the keys of all ports. It returns the
// keys of the pods of whose addresses only egress features know.
func (c *Controller) reserveFormer(owners []string) []string {
	keys := slices.Clone(owners)
	for _, obj := range c.pods.List() {
		p, ok := obj.(*corev1.Pod)
		if !ok || !kube.NeedsNetwork(p) {
			continue
		}
		keys = append(keys, kube.PodKey(p))
		if c.alloc.IsReserved(holder(p)) {
			continue
		}
		if addrs := c.former(p); len(addrs) > 0 {
			c.alloc.Strand(holder(p), addrs)
		}
	}
	c.reserveStale(owners)
	return c.reserveUsed(keys)
}

// reserveStale reserves the addresses in the ports of pods that were deleted while no master was running. No other pod may have them
// before the ports are deleted, which reconcilePod does for their keys: immediately, except for static pods.
func (c *Controller) reserveStale(owners []string) {
	for _, key := range owners {
		rows := c.Writer.Rows(pod.Owner(key))
		given, ok := pod.AddressesIn(rows)
		if !ok {
			continue
		}
		if p, err := c.lookup(key); err == nil && p != nil && string(kube.PodUID(p)) == given.UID {
			continue
		}
		if pod.Static(rows) && !c.exists(key) {
			c.mirrorless[key] = time.Now().Add(kube.MirrorGrace)
		}
		c.alloc.Strand(pod.Holder{Key: key, UID: cmp.Or(given.UID, "unknown")}, given.Addrs)
	}
}

// former returns the addresses of a pod that it had before this master started, if they are not in the subnets of its node.
func (c *Controller) former(p *corev1.Pod) []netip.Addr {
	var node topology.Node
	if n, err := c.nodes.Get(p.Spec.NodeName); err == nil {
		node, _ = c.decoded.Node(n) // the network controller reports parse errors
	}
	if _, ok := c.known(p, node); ok {
		return nil // another pod has one of them
	}
	if addrs := pod.AddressesFor(c.Writer.Rows(pod.Owner(kube.PodKey(p))), string(kube.PodUID(p))); len(addrs) > 0 {
		return addrs
	}
	return kube.PodAddresses(p)
}

// reserveUsed reserves the addresses that egress features use and that none of the pods with the given keys has, and returns the
// keys of their holders.
func (c *Controller) reserveUsed(keys []string) (added []string) {
	add := func(key string, a netip.Addr) {
		h := pod.Holder{Key: key, UID: "formerly " + a.String()}
		c.alloc.Strand(h, []netip.Addr{a})
		c.setUsed(h, true)
		added = append(added, key)
	}
	known := map[netip.Addr]bool{}
	if c.Egress != nil {
		for key, addrs := range c.Egress.Used() {
			has := c.addressesOf(key)
			for _, a := range addrs {
				if !slices.Contains(has, a) {
					known[a] = true
					add(key, a)
				}
			}
		}
	}
	if len(c.Matched) == 0 {
		return added
	}
	for _, key := range keys {
		for _, a := range c.addressesOf(key) {
			known[a] = true
		}
	}
	for _, m := range c.Matched {
		addrs, _ := m.Addrs()
		for _, a := range addrs {
			if !known[a] {
				known[a] = true
				add("/"+a.String(), a) // its pod is unknown
			}
		}
	}
	return added
}

// addressesOf returns the addresses that a pod with a key has, whether in its port or reserved.
func (c *Controller) addressesOf(key string) []netip.Addr {
	addrs := pod.AddressesFor(c.Writer.Rows(pod.Owner(key)), "")
	for _, h := range c.alloc.Others(pod.Holder{Key: key}) {
		addrs = append(addrs, c.alloc.Addrs(h)...)
	}
	return addrs
}
