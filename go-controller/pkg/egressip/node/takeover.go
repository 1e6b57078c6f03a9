package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// takeoversKey is the key of finishTakeovers; no EgressIP has this name.
const takeoversKey = "/takeovers"

// reportPace is the delay after the first report of the chassis, so that a burst of them causes a single flush. The later
// reports come, the longer it is, by up to latePace: each flush reads all connections of the node.
const (
	reportPace = time.Second
	latePace   = 30 * time.Second
)

// leads returns the translations of the pods that are led to this node: those to addresses that it has.
func (s state) leads() map[netip.Addr]netip.Addr {
	led := maps.Clone(s.host.Translations)
	maps.DeleteFunc(led, func(_, to netip.Addr) bool { return !s.held[to] })
	return led
}

// awaitPods makes this node flush once more when pods are led here that were not, or for another address: the master
// writes their policies once the node has acknowledged the address, and until they are in force here, the gateway router continues to translate
// the pods of this node. With the kernel's datapath the router and the host share their connection tracking entries, and
// a busy connection has recreated its old entry since the first flush.
func (c *Controller) awaitPods(before, after state) {
	was := before.leads()
	if before.incomplete { // none was led here yet for what failed
		was = nil
	}
	for pod, to := range after.leads() {
		if was[pod] != to {
			c.unconfirmed.Changed()
			c.queue.EnqueueAfter(reportPace, takeoversKey) // if the chassis has reported before
			return
		}
	}
}

// applied is called when policies that lead pods here may have come into force on this node.
func (c *Controller) applied() {
	if late, matters := c.unconfirmed.Reported(); matters {
		c.queue.EnqueueAfter(reportPace+min(late, latePace), takeoversKey)
	}
}

// finishTakeovers flushes the connections of all pods that are led here, unless another feature leads them.
func (c *Controller) finishTakeovers(ctx context.Context) error {
	all := map[netip.Addr]netip.Addr{}
	c.mu.Lock()
	for _, s := range c.states {
		maps.Copy(all, s.leads())
	}
	c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := c.deps.Flows.Settle(ctx); err != nil {
		return err
	}
	rules, err := c.deps.Kernel.Rules(ctx)
	if err == nil {
		preceded := egressip.Preceded(rules)
		err = c.deps.Kernel.Flush(ctx, func(src, to netip.Addr) bool {
			want, led := all[src]
			return led && to != want && !preceded[src]
		}, nil)
	}
	if err != nil {
		return fmt.Errorf("flush connections from before their pods were led here: %w", err)
	}
	return nil
}
