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
	// handoverLimit bounds a handover: who stops this process waits so long.
	handoverLimit = 4 * time.Second
	// handoverPatience is how long it goes on while nobody takes anything.
	handoverPatience = 2 * time.Second
	// dropLimit bounds what comes after it.
	dropLimit = time.Second
	// handoverTick is how often it is looked how far it is.
	handoverTick = 10 * time.Millisecond
	// backKey is the key of taking back the request; no EgressIP is called so.
	backKey = "/back"
)

// HandOver has other nodes take over what this one holds, before it stops. It
// returns when all is taken over and pods are led there, when nobody is there to do it, or
// in any case after a few seconds: then this node's bridge and kernel go on without us,
// but for translations of what has gone. Run must go on meanwhile.
func (c *Controller) HandOver(ctx context.Context) error {
	held := c.Answering()
	if held == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, handoverLimit)
	defer cancel()
	if ok, err := c.somebodyElse(limited); err != nil || !ok {
		return err
	}
	klog.InfoS("Handing over egress addresses", "addresses", held)
	c.setLeaving()
	if err := c.ask(limited, kube.Value("true")); err != nil {
		return err
	}
	c.awaitHandover(limited, held)
	c.dropReleased(ctx)
	return nil
}

// awaitHandover waits for others to have what this node held, and for pods to be led there.
func (c *Controller) awaitHandover(ctx context.Context, held int) {
	tick := time.NewTicker(handoverTick)
	defer tick.Stop()
	stuck := time.NewTimer(handoverPatience)
	defer stuck.Stop()
	for {
		select {
		case <-ctx.Done():
			klog.InfoS("Not all egress addresses were taken over in time", "left", c.Answering())
			return
		case <-stuck.C:
			klog.InfoS("Nobody takes over the egress addresses any more, or leads pods there", "left", c.Answering())
			return
		case <-tick.C:
		}
		now := c.Answering()
		if now == 0 && c.ledElsewhere() {
			klog.InfoS("Egress addresses handed over")
			return
		}
		if now < held {
			held = now
			stuck.Reset(handoverPatience)
		}
	}
}

// ledElsewhere reports whether no pod is led to this node any more for an address on a
// secondary network that it has released. On the primary network its gateway router goes on
// translating for them.
func (c *Controller) ledElsewhere() bool {
	c.mu.Lock()
	keys := slices.Collect(maps.Keys(c.released))
	c.mu.Unlock()
	return !slices.ContainsFunc(keys, func(key string) bool {
		e, err := c.deps.EgressIPs.Lister().Get(key)
		return err == nil && !meta.IsStatusConditionTrue(e.Status.Conditions, v1.ConditionProgrammed)
	})
}

// dropReleased has the kernel drop what still comes for addresses on secondary networks that
// this node has released: nobody would take their translations away when this process has
// ended. It waits for that, for a moment.
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
			klog.InfoS("Translations to egress addresses that are others' by now are left behind")
			return
		case <-tick.C:
		}
	}
}

// translatesReleased reports whether the kernel translates to addresses that are released.
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

// somebodyElse reports whether there is another node that may hold addresses.
func (c *Controller) somebodyElse(ctx context.Context) (bool, error) {
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
	candidates, _ = place.ReadyInOutage(time.Now(), candidates) // the master goes by that, too
	for _, n := range candidates {
		if n.Name != c.deps.Node && n.Ready && !n.Unschedulable && !n.Draining {
			return true, nil
		}
	}
	return false, nil
}

// ask makes the node's request for a handover be value; nil for none.
func (c *Controller) ask(ctx context.Context, value *string) error {
	n, err := c.deps.Nodes.Lister().Get(c.deps.Node)
	if apierrors.IsNotFound(err) {
		return nil // its event comes
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

// back takes back the request of an earlier run: this node can hold addresses
// again.
func (c *Controller) back(ctx context.Context) error {
	c.mu.Lock()
	leaving := c.leaving
	c.mu.Unlock()
	if leaving || !c.ready() {
		return nil // it is done again when the node is ready
	}
	return c.ask(ctx, nil)
}

func (c *Controller) setLeaving() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
}
