package node

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// routed returns the pods that are led into a network without a translation, with the network's table: the host masquerades
// them with the address of the link by which they leave. They include the Service's cluster addresses, which open no connections.
func (c contribution) routed() map[netip.Addr]int {
	pods := map[netip.Addr]int{}
	for r := range c.ipRules {
		_, translated := c.translations[r.Src.Addr()]
		if r.Priority == topology.RuleEgressServiceNetwork && r.Src.IsSingleIP() && r.Protocol == "" && !translated {
			pods[r.Src.Addr()] = r.Table
		}
	}
	return pods
}

// flushRerouted deletes the connections of the pods that want leads into another network than have did, if they have another
// address than their link. The kernel itself only ends connections that it masquerades and that leave by another link
// than before, not those that a rule, or the gateway router, has given an address.
func (c *Controller) flushRerouted(ctx context.Context, have, want contribution) error {
	was, fresh := have.routed(), map[netip.Addr]bool{}
	for pod, table := range want.routed() {
		if have.incomplete || was[pod] != table {
			fresh[pod] = true
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := c.flushRouted(ctx, fresh); err != nil {
		return err
	}
	c.unconfirmed.Changed()
	c.queue.EnqueueAfter(reportPace, takeoversKey) // if this node has reported before
	return nil
}

// flushRouted deletes the connections of pods with another address than the host would masquerade them with now, unless
// it translates the pods.
func (c *Controller) flushRouted(ctx context.Context, pods map[netip.Addr]bool) error {
	c.mu.Lock()
	for _, has := range c.contributed {
		for pod := range has.translations {
			delete(pods, pod)
		}
		for pod := range has.pending {
			delete(pods, pod)
		}
	}
	c.mu.Unlock()
	if len(pods) == 0 {
		return nil
	}
	if err := c.deps.FlushRouted(ctx, pods); err != nil {
		return fmt.Errorf("flush connections of pods that leave by another link now: %w", err)
	}
	return nil
}
