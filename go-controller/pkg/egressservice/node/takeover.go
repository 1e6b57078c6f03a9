package node

import (
	"context"
	"fmt"
	"maps"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
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
	if err := c.flush.replaced(ctx, want, nil); err != nil {
		return fmt.Errorf("flush connections of EgressService %s: %w", s.Key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled[s.Key] = want
	return nil
}
