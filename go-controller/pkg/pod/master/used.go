package master

import (
	"net/netip"
	"slices"

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

// usedAddress is an address of a deleted pod that egress features still used when this master started.
type usedAddress struct {
	pod.Holder
	addr netip.Addr
}

// usedAddresses returns the addresses that egress features use for pods without a port that has them. owners are the keys of all ports.
func (c *Controller) usedAddresses(owners []string) []usedAddress {
	var used []usedAddress
	add := func(key string, a netip.Addr) {
		used = append(used, usedAddress{pod.Holder{Key: key, UID: "formerly " + a.String()}, a})
	}
	known := map[netip.Addr]bool{}
	if c.Egress != nil {
		for key, addrs := range c.Egress.Used() {
			given := pod.AddressesFor(c.Writer.Rows(pod.Owner(key)), "")
			for _, a := range addrs {
				if !slices.Contains(given, a) {
					known[a] = true
					add(key, a)
				}
			}
		}
	}
	if len(c.Matched) == 0 {
		return used
	}
	for _, key := range owners {
		for _, a := range pod.AddressesFor(c.Writer.Rows(pod.Owner(key)), "") {
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
	return used
}

// reserveUsed passes those of the addresses that are in a node's subnets, and that no pod has, to the allocator.
func (c *Controller) reserveUsed(node string, used []usedAddress) {
	subnets := c.alloc.Subnets(node)
	var claims []pod.Claim
	for _, u := range used {
		if network, ok := (topology.PodAddresses{Addrs: []netip.Addr{u.addr}}).Network(subnets); ok {
			claims = append(claims, pod.Claim{Holder: u.Holder, Addrs: network.Addrs})
		}
	}
	if len(claims) == 0 {
		return
	}
	c.alloc.SetNode(node, subnets, claims)
	for _, claim := range claims {
		if c.alloc.IsReserved(claim.Holder) {
			c.setUsed(claim.Holder, true)
		}
	}
}
