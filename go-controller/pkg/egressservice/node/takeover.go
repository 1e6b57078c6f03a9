package node

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
)

// takeoversKey is the key of finishTakeovers; no EgressService has this name.
const takeoversKey = "takeovers"

// reportPace is the delay after the first report of the chassis, so that a burst of them causes a single flush. The later
// reports come, the longer it is, by up to latePace: each flush reads all connections of the node.
const (
	reportPace = time.Second
	latePace   = 30 * time.Second
)

// finishTakeover flushes once more when the master reports that the traffic of an EgressService is
// led to this node. Until then the gateway router of a pod's own node continued to
// translate: if that node is this one and the datapath is the kernel's, the router and
// the host share their connection tracking entries, and a busy connection has recreated its
// old entry since the first flush.
func (c *Controller) finishTakeover(ctx context.Context, s egressservice.Service, want egressservice.Translations) error {
	c.mu.Lock()
	if s.Host != c.deps.Node || !s.Done {
		delete(c.settled, s.Key)
		c.mu.Unlock()
		return nil
	}
	was, known := c.settled[s.Key]
	c.mu.Unlock()
	if known && maps.Equal(was, want) {
		return nil
	}
	if err := c.flush.replaced(ctx, want, nil, nil); err != nil {
		return fmt.Errorf("flush connections of EgressService %s: %w", s.Key, err)
	}
	c.mu.Lock()
	c.settled[s.Key] = want
	c.mu.Unlock()
	if len(want) > 0 {
		c.unconfirmed.Changed()
		c.queue.EnqueueAfter(reportPace, takeoversKey) // if this node has reported before
	}
	return nil
}

// applied is called when the policies of an EgressService may have come into force on this node.
func (c *Controller) applied() {
	if late, matters := c.unconfirmed.Reported(); matters {
		c.queue.EnqueueAfter(reportPace+min(late, latePace), takeoversKey)
	}
}

// finishTakeovers flushes the connections of all EgressServices whose traffic is led to this node: the master reports
// that when it has written the policies, and until they are in force here a busy connection may recreate its old entry.
func (c *Controller) finishTakeovers(ctx context.Context) error {
	all := egressservice.Translations{}
	c.mu.Lock()
	for _, translations := range c.settled {
		maps.Copy(all, translations)
	}
	c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := c.deps.Settle(ctx); err != nil {
		return err
	}
	if err := c.flush.replaced(ctx, all, nil, nil); err != nil {
		return fmt.Errorf("flush connections from before their pods were led here: %w", err)
	}
	return nil
}
