package node

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

const (
	// changingKey is the key of a pass over the pods that change their EgressIP; no EgressIP has this name.
	changingKey = "/changing"
	// changingLimit is how long such a pod is held back if the next EgressIP does not translate it here: by then it is
	// led elsewhere.
	changingLimit = 6 * time.Second
)

// changingContributor is the name of the contribution for pods that change their EgressIP.
const changingContributor = egressip.Feature + "~changing"

// changing holds back pods that this node no longer translates for one EgressIP, while another one has them that does
// not translate them here yet, or does so on another node: as long as they are led here, the main table would let
// those of this node leave with its address.
type changing struct {
	kernel Kernel
	passes *host.Coalescer[error]

	mu   sync.Mutex
	pods map[netip.Addr]time.Time // until when they are held back
}

func newChanging(k Kernel) *changing {
	return &changing{kernel: k, passes: host.NewCoalescer[error](), pods: map[netip.Addr]time.Time{}}
}

// hold begins to hold back pods.
func (h *changing) hold(ctx context.Context, pods []netip.Addr) error {
	if len(pods) == 0 {
		return nil
	}
	until := time.Now().Add(changingLimit)
	h.mu.Lock()
	for _, p := range pods {
		h.pods[p] = until
	}
	h.mu.Unlock()
	return h.write(ctx)
}

// release ends that for pods that are translated, or have been held back for long enough.
func (h *changing) release(ctx context.Context, translated map[netip.Addr]netip.Addr) error {
	now, fewer := time.Now(), false
	h.mu.Lock()
	for p, until := range h.pods {
		if _, ok := translated[p]; ok || !until.After(now) {
			delete(h.pods, p)
			fewer = true
		}
	}
	h.mu.Unlock()
	if !fewer {
		return nil
	}
	return h.write(ctx)
}

// rest returns for how long any pod is still held back; 0 if none is.
func (h *changing) rest(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	rest := time.Duration(0)
	for _, until := range h.pods {
		rest = max(rest, until.Sub(now))
	}
	return rest
}

// write routes the pods to the table that leads nowhere.
func (h *changing) write(ctx context.Context) error {
	failed, err := h.passes.Do(ctx, h.passes.Request(), func(ctx context.Context) error {
		rules, routes := h.contribution()
		if len(routes) > 0 { // before rules lead to them
			if err := h.kernel.Routes.Apply(ctx, changingContributor, routes); err != nil {
				return err
			}
		}
		if err := h.kernel.IPRules.Apply(ctx, changingContributor, rules); err != nil {
			return err
		}
		if len(routes) == 0 {
			return h.kernel.Routes.Apply(ctx, changingContributor, nil)
		}
		return nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("hold back pods that change their EgressIP: %w", err)
	}
	return nil
}

func (h *changing) contribution() (map[host.IPRule]struct{}, map[host.Route]host.Hop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rules, routes := map[host.IPRule]struct{}{}, map[host.Route]host.Hop{}
	for p := range h.pods {
		f := topology.FamilyOf(p)
		rules[egressip.Nowhere(p)] = struct{}{}
		rules[egressip.ToNodes(f)] = struct{}{}
		routes[host.Route{Dst: topology.Everywhere(f), Table: egressip.TableOf(0)}] = host.Hop{Drop: true}
	}
	return rules, routes
}

// holdBack holds back the pods that this node is about to stop translating for an EgressIP, if another one has
// them and does not translate them here yet.
func (c *Controller) holdBack(ctx context.Context, key string, before, next egressip.HostState) error {
	gone := map[netip.Addr]bool{}
	for pod := range before.Translations {
		if _, still := next.Translations[pod]; !still {
			gone[pod] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	var pods []netip.Addr
	for pod, other := range c.pods.members.Holders(gone) {
		if other != key && !c.translates(other, pod) {
			pods = append(pods, pod)
		}
	}
	if err := c.changing.hold(ctx, pods); err != nil || len(pods) == 0 {
		return err
	}
	c.queue.EnqueueAfter(changingLimit, changingKey)
	return nil
}

// translates reports whether this node has the rules of an EgressIP for a pod.
func (c *Controller) translates(key string, pod netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.states[key].host.Translations[pod]
	return ok
}

// endHoldingBack releases the pods that have been held back for long enough.
func (c *Controller) endHoldingBack(ctx context.Context) error {
	if err := c.changing.release(ctx, nil); err != nil {
		return err
	}
	if rest := c.changing.rest(time.Now()); rest > 0 {
		c.queue.EnqueueAfter(rest, changingKey)
	}
	return nil
}
