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
	led := after.leads()
	maps.DeleteFunc(led, func(pod, to netip.Addr) bool { return was[pod] == to })
	if len(led) == 0 {
		return
	}
	c.mu.Lock()
	maps.Copy(c.newlyLed, led)
	c.unconfirmed.Changed()
	c.mu.Unlock()
	c.queue.EnqueueAfter(reportPace, takeoversKey) // if the chassis has reported before
}

// applied is called when policies that lead pods here may have come into force on this node.
func (c *Controller) applied() {
	if late, matters := c.unconfirmed.Reported(); matters {
		c.queue.EnqueueAfter(reportPace+min(late, latePace), takeoversKey)
	}
}

// finishTakeovers flushes the connections of the pods that were not led here before, unless another feature leads them. Others
// are left alone: where the router and the host share their entries, those of pods with external gateways look as if they had
// another address.
func (c *Controller) finishTakeovers(ctx context.Context) error {
	led, last := c.stillLed()
	if len(led) == 0 {
		return nil
	}
	if err := c.deps.Flows.Settle(ctx); err != nil {
		return err
	}
	rules, err := c.deps.Kernel.Rules(ctx)
	if err == nil {
		preceded := egressip.Preceded(rules)
		// Whose address has changed meanwhile has connections with the new one, and is flushed for that.
		now, _ := c.stillLed()
		maps.DeleteFunc(led, func(pod, to netip.Addr) bool { return now[pod] != to })
		err = c.deps.Kernel.Flush(ctx, func(src, to netip.Addr) bool {
			want, ok := led[src]
			return ok && to != want && !preceded[src]
		}, nil)
	}
	if err != nil {
		return fmt.Errorf("flush connections from before their pods were led here: %w", err)
	}
	if last {
		c.mu.Lock()
		maps.DeleteFunc(c.newlyLed, func(pod, to netip.Addr) bool { return led[pod] == to })
		c.mu.Unlock()
	}
	return nil
}

// stillLed returns the pods that were not led here before, and are now, and whether all of that is confirmed. It forgets those that
// are not led here any more.
func (c *Controller) stillLed() (led map[netip.Addr]netip.Addr, confirmed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	led = map[netip.Addr]netip.Addr{}
	for _, s := range c.states {
		for pod, to := range s.leads() {
			if c.newlyLed[pod] == to {
				led[pod] = to
			}
		}
	}
	c.newlyLed = maps.Clone(led)
	return led, !c.unconfirmed.Waiting()
}
