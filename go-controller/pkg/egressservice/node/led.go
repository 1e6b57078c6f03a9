package node

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// led returns the pods that are led into a network without a translation, with the network's table: the host masquerades
// them with the address of the link by which they leave. They include the Service's cluster addresses, which open no connections.
func (c contribution) led() map[netip.Addr]int {
	pods := map[netip.Addr]int{}
	for r := range c.ipRules {
		_, translated := c.translations[r.Src.Addr()]
		if r.Priority == topology.RuleEgressServiceNetwork && r.Protocol == "" && !translated {
			pods[r.Src.Addr()] = r.Table
		}
	}
	return pods
}

// newlyLed returns the pods that want leads into a network, but have did not, or into another one. The kernel itself ends connections that it
// masquerades and that are routed to another link, but not those that the rule of an EgressIP has given an address. The connections of other
// pods are left alone: nothing has changed their way.
func newlyLed(have, want contribution) map[netip.Addr]bool {
	was, pods := have.led(), map[netip.Addr]bool{}
	for pod, table := range want.led() {
		if have.incomplete || was[pod] != table {
			pods[pod] = true
		}
	}
	return pods
}

// flushLed deletes the connections of newly led pods that have the address of another link, but not of those that an
// EgressService translates, or did until now: these end with the translation.
func (c *Controller) flushLed(ctx context.Context, pods map[netip.Addr]bool) error {
	c.mu.Lock()
	for pod := range pods {
		if slices.ContainsFunc(c.users[pod], func(key string) bool { return c.contributed[key].translates(pod) }) {
			delete(pods, pod)
		}
	}
	c.mu.Unlock()
	c.leaving.mu.Lock()
	for d := range c.leaving.translations {
		delete(pods, d.addr)
	}
	c.leaving.mu.Unlock()
	if len(pods) == 0 {
		return nil
	}
	return c.deps.FlushLed(ctx, pods)
}

// translates reports whether the kernel may translate a pod.
func (c contribution) translates(pod netip.Addr) bool {
	_, now := c.translations[pod]
	_, soon := c.pending[pod]
	return now || soon
}
