package node

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

const (
	// handoverLimit bounds a handover: who stops this process waits so long.
	handoverLimit = 4 * time.Second
	// handoverPatience is how long it goes on while nobody takes anything.
	handoverPatience = 2 * time.Second
	// handoverTick is how often it is looked how far it is.
	handoverTick = 10 * time.Millisecond
	// backKey is the key of taking back the request; no EgressIP is called so.
	backKey = "/back"
)

// HandOver has other nodes take over what this one holds, before it stops. It
// returns when all is taken over, when nobody is there to do it, or in any case
// after a few seconds: then this node's bridge and kernel go on without us. Run
// must go on meanwhile.
func (c *Controller) HandOver(ctx context.Context) error {
	held := c.Answering()
	if held == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handoverLimit)
	defer cancel()
	if ok, err := c.somebodyElse(ctx); err != nil || !ok {
		return err
	}
	klog.InfoS("Handing over egress addresses", "addresses", held)
	c.setLeaving()
	if err := c.ask(ctx, kube.Value("true")); err != nil {
		return err
	}
	tick := time.NewTicker(handoverTick)
	defer tick.Stop()
	stuck := time.NewTimer(handoverPatience)
	defer stuck.Stop()
	for {
		select {
		case <-ctx.Done():
			klog.InfoS("Not all egress addresses were taken over in time", "left", c.Answering())
			return nil
		case <-stuck.C:
			klog.InfoS("No other node takes over the egress addresses", "left", c.Answering())
			return nil
		case <-tick.C:
		}
		now := c.Answering()
		if now == 0 {
			klog.InfoS("Egress addresses handed over")
			return nil
		}
		if now < held {
			held = now
			stuck.Reset(handoverPatience)
		}
	}
}

// somebodyElse tells whether there is another node that may hold addresses.
func (c *Controller) somebodyElse(ctx context.Context) (bool, error) {
	nodes, err := c.deps.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: kube.LabelEgressAssignable})
	if err != nil {
		return false, fmt.Errorf("find who could take over egress addresses: %w", err)
	}
	for i := range nodes.Items {
		node, err := kube.Node(&nodes.Items[i])
		if err != nil {
			klog.V(4).InfoS("Node has an annotation that cannot be read", "node", node.Name, "err", err)
		}
		if node.Name != c.deps.Node && node.Ready && !node.Unschedulable && !node.Draining {
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
