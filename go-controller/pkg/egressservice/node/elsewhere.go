package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
)

// elsewhereContributor is the name of the contributions for pods that leave by another node.
func elsewhereContributor(key string) string { return egressservice.Contributor(key) + "~elsewhere" }

// keepIn prevents pods of this node that leave by another node from leaving by this one, once
// they are led there, and as soon as this node's previous translations have expired. These stay until then: without
// either, pods that are still led to this node's kernel would leave with its address.
func (c *Controller) keepIn(ctx context.Context, s egressservice.Service) error {
	pods := egressservice.Elsewhere(s, c.deps.Node)
	c.mu.Lock()
	if len(c.elsewhere[s.Key]) == 0 && !s.Done && !c.leaving.holds(s.Key) {
		pods = nil
	}
	c.mu.Unlock()
	if rest := c.leaving.rest(s.Key, time.Now()); rest > 0 && len(pods) > 0 {
		c.leaving.hold(s.Key)
		c.queue.EnqueueAfter(rest, s.Key)
		return c.keep(ctx, s, nil)
	}
	if err := c.keep(ctx, s, pods); err != nil {
		return err
	}
	c.leaving.let(s.Key)
	return nil
}

// keep writes the rules that keep these pods of an EgressService from leaving by this node.
func (c *Controller) keep(ctx context.Context, s egressservice.Service, pods []netip.Addr) error {
	c.mu.Lock()
	same := slices.Equal(pods, c.elsewhere[s.Key])
	c.mu.Unlock()
	if same {
		return nil
	}
	if err := c.deps.Chains.Apply(ctx, elsewhereContributor(s.Key), egressservice.ElsewhereRules(pods, s.Key)); err != nil {
		return fmt.Errorf("apply rules for pods of EgressService %s that leave by %s: %w", s.Key, s.Host, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.elsewhere[s.Key] = pods; len(pods) == 0 {
		delete(c.elsewhere, s.Key)
	}
	klog.V(2).InfoS("Rules written for pods that leave by another node", "egressService", s.Key, "pods", len(pods))
	return nil
}
