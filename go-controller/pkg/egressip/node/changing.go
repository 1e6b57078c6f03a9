package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	// changingKey is the key of a pass over the pods that change their EgressIP; no EgressIP has this name.
	changingKey = "/changing"
	// changingContributor is the name of the contribution for these pods.
	changingContributor = egressip.Feature + "~changing"
	// changingLimit is how long such a pod is held back if the next EgressIP does not route it here: by then it is
	// led elsewhere, unless the chassis hangs.
	changingLimit = 6 * time.Second
	// changingCheck is the interval for checking whether a pod still has an EgressIP that leads it elsewhere.
	changingCheck = time.Second
)

// changing holds back pods that this node no longer routes for one EgressIP, while another one has them that does
// not route them here yet, or does so on another node: as long as they are led here, the main table would let
// those of this node leave with its address.
type changing struct {
	kernel Kernel
	passes *host.Coalescer[error]

	mu      sync.Mutex
	pods    map[netip.Addr]time.Time // until when they are held back
	written bool                     // the host has the state for these pods
}

func newChanging(k Kernel) *changing {
	return &changing{kernel: k, passes: host.NewCoalescer[error](), pods: map[netip.Addr]time.Time{}, written: true}
}

// hold begins to hold back pods.
func (h *changing) hold(ctx context.Context, pods []netip.Addr) error {
	h.mu.Lock()
	for _, p := range pods {
		h.pods[p], h.written = time.Now().Add(changingLimit), false
	}
	h.mu.Unlock()
	return h.write(ctx)
}

// release ends that for the pods for which over returns true, and for those that have been held back for long enough.
func (h *changing) release(ctx context.Context, over func(pod netip.Addr) bool) error {
	now := time.Now()
	h.mu.Lock()
	for p, until := range h.pods {
		if !until.After(now) || over(p) {
			delete(h.pods, p)
			h.written = false
		}
	}
	h.mu.Unlock()
	return h.write(ctx)
}

// held returns the pods that are held back, sorted.
func (h *changing) held() []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Keys(h.pods), netip.Addr.Compare)
}

// write routes the pods to the table that leads nowhere, unless that is written.
func (h *changing) write(ctx context.Context) error {
	h.mu.Lock()
	written := h.written
	h.mu.Unlock()
	if written {
		return nil
	}
	failed, err := h.passes.Do(ctx, h.passes.Request(), h.pass)
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("hold back pods that change their EgressIP: %w", err)
	}
	return nil
}

func (h *changing) pass(ctx context.Context) error {
	h.mu.Lock()
	s := egressip.Nowhere(slices.Collect(maps.Keys(h.pods)))
	h.written = true
	h.mu.Unlock()
	rules := func() error { return h.kernel.IPRules.Apply(ctx, changingContributor, s.IPRules) }
	rest := func() error {
		return errors.Join(h.kernel.Routes.Apply(ctx, changingContributor, s.Routes), h.kernel.Chains.Apply(ctx, changingContributor, s.Rules))
	}
	steps := []func() error{rest, rules} // what the rules need is there before they are
	if len(s.IPRules) == 0 {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			h.mu.Lock()
			h.written = false
			h.mu.Unlock()
			return err
		}
	}
	return nil
}

// holdBack holds back the pods that this node is about to stop routing for an EgressIP, if another one has
// them that has addresses or drops their traffic, and does not route them here yet.
func (c *Controller) holdBack(ctx context.Context, key string, before, next egressip.HostState) error {
	still, ledElsewhere := next.Routed(), c.ledElsewhere()
	var pods []netip.Addr
	for pod := range before.Routed() {
		if !still[pod] && c.pods.members.Holder(pod) != key && ledElsewhere(pod) {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	c.queue.EnqueueAfter(changingCheck, changingKey)
	return c.changing.hold(ctx, pods)
}

// ledElsewhere returns a function that reports whether an EgressIP that has addresses, or drops traffic without them, has a pod,
// and this node does not route the pod for it.
func (c *Controller) ledElsewhere() func(pod netip.Addr) bool {
	routed := map[string]map[netip.Addr]bool{} // by EgressIP
	return func(pod netip.Addr) bool {
		key := c.pods.members.Holder(pod)
		e, err := c.deps.EgressIPs.Lister().Get(key)
		if err != nil || !dropsOrLeads(e, topology.FamilyOf(pod)) {
			return false
		}
		if _, known := routed[key]; !known {
			c.mu.Lock()
			routed[key] = c.states[key].host.Routed()
			c.mu.Unlock()
		}
		return !routed[key][pod]
	}
}

// dropsOrLeads reports whether an EgressIP has addresses of a family with nodes, or drops the traffic of its pods without them.
func dropsOrLeads(e *v1.EgressIP, f topology.Family) bool {
	if _, ok := topology.AddrOf(f, addressesOf(e).list); ok {
		return true
	}
	decoded := egressip.Decode(e)
	return decoded.DropWhenUnavailable && decoded.Serves(f)
}

// endHoldingBack releases the pods that have been held back for long enough, and those that no EgressIP leads
// elsewhere any more.
func (c *Controller) endHoldingBack(ctx context.Context) error {
	elsewhere, ledElsewhere := map[netip.Addr]bool{}, c.ledElsewhere()
	for _, pod := range c.changing.held() {
		elsewhere[pod] = ledElsewhere(pod)
	}
	if len(elsewhere) > 0 {
		c.queue.EnqueueAfter(changingCheck, changingKey)
	}
	return c.changing.release(ctx, func(pod netip.Addr) bool {
		stays, known := elsewhere[pod]
		return known && !stays
	})
}
