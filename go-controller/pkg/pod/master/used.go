package master

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Egress may keep rows with the addresses of a deleted pod for a while. Until these are gone, the pod keeps its addresses:
// they would steer the traffic of another pod that had one of them.

// uses reports whether Egress may still use the addresses of a holder whose port is removed. If so, unused enqueues its pod when that ends.
func (c *Controller) uses(h pod.Holder) bool {
	if c.Egress == nil {
		return false
	}
	c.setUsed(h, true) // before asking, so that unused finds it
	if c.Egress.Uses(h.Key, c.alloc.Addrs(h)) {
		return true
	}
	c.setUsed(h, false)
	return false
}

func (c *Controller) setUsed(h pod.Holder, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used[h] = used; !used {
		delete(c.used, h)
	}
}

func (c *Controller) isUsed(h pod.Holder) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used[h]
}

// unused enqueues a pod if Egress no longer uses the addresses of one of its incarnations.
func (c *Controller) unused(key string) {
	if slices.ContainsFunc(c.alloc.Others(pod.Holder{Key: key}), func(h pod.Holder) bool {
		return c.isUsed(h) && !c.Egress.Uses(key, c.alloc.Addrs(h))
	}) {
		c.queue.Enqueue(key)
	}
}

// portRemoved reports whether the port of a pod's incarnations other than except is removed, and this has been reported: the
// port that exists is that of except, or there is none and only Egress still uses their addresses.
func (c *Controller) portRemoved(except pod.Holder) bool {
	rows := c.Writer.Rows(pod.Owner(except.Key))
	if len(rows) > 0 {
		given, ok := pod.AddressesIn(rows)
		return ok && except.UID != "" && given.UID == except.UID
	}
	others := c.alloc.Others(except)
	return len(others) > 0 && !slices.ContainsFunc(others, func(h pod.Holder) bool { return !c.isUsed(h) })
}

// usedAddress is an address of a deleted pod that Egress still used when this master started.
type usedAddress struct {
	pod.Holder
	addr netip.Addr
}

// usedAddresses returns the addresses that Egress uses for pods without a port that has them.
func (c *Controller) usedAddresses() []usedAddress {
	if c.Egress == nil {
		return nil
	}
	var used []usedAddress
	for key, addrs := range c.Egress.Used() {
		given := pod.AddressesFor(c.Writer.Rows(pod.Owner(key)), "")
		for _, a := range addrs {
			if !slices.Contains(given, a) {
				used = append(used, usedAddress{pod.Holder{Key: key, UID: "formerly " + a.String()}, a})
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
	if len(claims) > 0 {
		c.alloc.SetNode(node, subnets, claims)
	}
}
