package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

const (
	// handoverLimit bounds a handover, which delays the end of this process.
	handoverLimit = 4 * time.Second
	// handoverStallTimeout is how long a handover continues without progress.
	handoverStallTimeout = 2 * time.Second
	// dropLimit bounds the step after the handover.
	dropLimit = time.Second
	// handoverTick is how often the progress is checked.
	handoverTick = 10 * time.Millisecond
	// withdrawKey is the key for withdrawing the request; no EgressIP has this name.
	withdrawKey = "/back"
)

// HandOver asks other nodes to take over the addresses of this node before the process ends. It
// returns when all are taken over and pods are led there, when no node can take them, or
// in any case after a few seconds: then this node's bridge and kernel keep working without this process,
// except for translations to released addresses. Run must keep running meanwhile.
func (c *Controller) HandOver(ctx context.Context) error {
	held := c.Answering()
	if held == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, handoverLimit)
	defer cancel()
	if ok, err := c.hasOtherCandidate(limited); err != nil || !ok {
		return err
	}
	klog.InfoS("Handing over egress addresses", "addresses", held)
	c.setLeaving()
	if err := c.setRequest(limited, kube.Value("true")); err != nil {
		return err
	}
	c.awaitHandover(limited, held)
	c.dropReleased(ctx)
	return nil
}

// awaitHandover waits until other nodes have taken this node's addresses, and pods are led there.
func (c *Controller) awaitHandover(ctx context.Context, held int) {
	tick := time.NewTicker(handoverTick)
	defer tick.Stop()
	stuck := time.NewTimer(handoverStallTimeout)
	defer stuck.Stop()
	for {
		select {
		case <-ctx.Done():
			klog.InfoS("Not all egress addresses were taken over in time", "left", c.Answering())
			return
		case <-stuck.C:
			klog.InfoS("Handover of egress addresses makes no progress", "left", c.Answering())
			return
		case <-tick.C:
		}
		now := c.Answering()
		if now == 0 && c.reroutedElsewhere() {
			klog.InfoS("Egress addresses handed over")
			return
		}
		if now < held {
			held = now
			stuck.Reset(handoverStallTimeout)
		}
	}
}

// reroutedElsewhere reports whether no pod is led to this node any more for an address on a
// secondary network that it has released. On the primary network its gateway router continues
// to translate for them.
func (c *Controller) reroutedElsewhere() bool {
	c.mu.Lock()
	keys := slices.Collect(maps.Keys(c.released))
	c.mu.Unlock()
	return !slices.ContainsFunc(keys, func(key string) bool {
		e, err := c.deps.EgressIPs.Lister().Get(key)
		return err == nil && !meta.IsStatusConditionTrue(e.Status.Conditions, v1.ConditionProgrammed)
	})
}

// dropReleased makes the kernel drop traffic for addresses on secondary networks that
// this node has released: after this process has ended, nothing would remove their translations.
// It waits for this for a limited time.
func (c *Controller) dropReleased(ctx context.Context) {
	c.mu.Lock()
	c.ending = true
	keys := slices.Collect(maps.Keys(c.released))
	c.mu.Unlock()
	c.queue.Enqueue(keys...)
	ctx, cancel := context.WithTimeout(ctx, dropLimit)
	defer cancel()
	tick := time.NewTicker(handoverTick)
	defer tick.Stop()
	for c.translatesReleased() {
		select {
		case <-ctx.Done():
			klog.InfoS("Stale translations to egress addresses now held by other nodes remain")
			return
		case <-tick.C:
		}
	}
}

// translatesReleased reports whether the kernel still translates to released addresses.
func (c *Controller) translatesReleased() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, left := range c.released {
		for _, to := range c.states[key].host.Translations {
			if _, ok := left[to]; ok {
				return true
			}
		}
	}
	return false
}

// hasOtherCandidate reports whether there is another node that may hold addresses.
func (c *Controller) hasOtherCandidate(ctx context.Context) (bool, error) {
	nodes, err := c.deps.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: kube.LabelEgressAssignable})
	if err != nil {
		return false, fmt.Errorf("find who could take over egress addresses: %w", err)
	}
	candidates := make([]place.Node, 0, len(nodes.Items))
	for i := range nodes.Items {
		node, err := kube.Node(&nodes.Items[i])
		if err != nil {
			klog.V(4).InfoS("Node has an annotation that cannot be read", "node", node.Name, "err", err)
		}
		candidates = append(candidates, place.Node{Node: node})
	}
	candidates, _ = place.ReadyInOutage(time.Now(), candidates) // the master uses the same rule
	for _, n := range candidates {
		if n.Name != c.deps.Node && n.Ready && !n.Unschedulable && !n.Draining {
			return true, nil
		}
	}
	return false, nil
}

// setRequest sets the node's handover request to value; nil removes it.
func (c *Controller) setRequest(ctx context.Context, value *string) error {
	n, err := c.deps.Nodes.Lister().Get(c.deps.Node)
	if apierrors.IsNotFound(err) {
		return nil // its event will enqueue the key
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", c.deps.Node, err)
	}
	err = kube.PatchNode(ctx, c.deps.Kube, n, kube.Metadata{Annotations: map[string]*string{kube.AnnotationEgressHandover: value}})
	if err != nil {
		return fmt.Errorf("ask others to take over egress addresses: %w", err)
	}
	return nil
}

// withdrawRequest withdraws the request of an earlier run: this node can hold addresses
// again.
func (c *Controller) withdrawRequest(ctx context.Context) error {
	c.mu.Lock()
	leaving := c.leaving
	c.mu.Unlock()
	if leaving || !c.ready() {
		return nil // repeated when the node is ready
	}
	return c.setRequest(ctx, nil)
}

func (c *Controller) setLeaving() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
}

func (c *Controller) ready() bool {
	select {
	case <-c.deps.Ready:
		return true
	default:
		return false
	}
}
