package master

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// reconcilePod makes annotation, port and addresses of one pod be as they should.
func (c *Controller) reconcilePod(ctx context.Context, key string) error {
	p, err := c.lookup(key)
	if err != nil {
		return err
	}
	if p == nil {
		return c.retire(ctx, pod.Holder{Key: key})
	}
	// An earlier pod of the same name, as a StatefulSet leaves it, is retired
	// first: the port of the new one must not inherit what was said of the old.
	if len(c.alloc.Others(holder(p))) > 0 {
		if err := c.retire(ctx, holder(p)); err != nil {
			return err
		}
	}
	node, err := c.node(p.Spec.NodeName)
	if err != nil {
		return err
	}
	if node == nil {
		klog.V(4).InfoS("Pod waits for the subnets of its node", "pod", key, "node", p.Spec.NodeName)
		return c.apply(ctx, key, nil)
	}
	network, err := c.network(ctx, p, node)
	if err != nil {
		return err
	}
	if network == nil {
		return c.apply(ctx, key, nil)
	}
	return c.apply(ctx, key, pod.Rows(c.Config, pod.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Network: *network,
	}, *node))
}

// retire deletes the rows of a pod and then releases what all its incarnations
// but one hold.
func (c *Controller) retire(ctx context.Context, except pod.Holder) error {
	if err := c.apply(ctx, except.Key, nil); err != nil {
		return err
	}
	for _, h := range c.alloc.Others(except) {
		c.forget(h)
		c.queue.Enqueue(c.alloc.Release(h)...)
		klog.V(2).InfoS("Released addresses of pod", "pod", h.Key, "uid", h.UID)
	}
	return nil
}

// node returns a node once it has subnets that the allocator knows; nil before.
// The node's key brings the pod back then.
func (c *Controller) node(name string) (*topology.Node, error) {
	n, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	node, _ := kube.Node(n) // the network's controller reports what does not parse
	if len(node.Subnets) == 0 || !slices.Equal(c.alloc.Subnets(name), node.Subnets) {
		return nil, nil
	}
	return &node, nil
}

// network returns the addresses of a pod: those it has been given before, or
// new ones, which it announces. It returns nil, and tells the user, where the
// pod cannot have any.
func (c *Controller) network(ctx context.Context, p *corev1.Pod, node *topology.Node) (*topology.PodNetwork, error) {
	if !c.awaited(p) {
		network, ok, err := kube.PodNetwork(p)
		if ok && err == nil {
			err = pod.Check(network)
		}
		if ok && err == nil {
			if err = c.alloc.Hold(holder(p), node.Name, network.Addrs); err == nil {
				return &network, nil
			}
		}
		if err != nil {
			c.Recorder.Eventf(p, corev1.EventTypeWarning, "AddressRefused", "%v", err)
			klog.InfoS("Cannot use the announced addresses of pod", "pod", kube.PodKey(p), "reason", err)
			if running(p) && !c.alloc.Holds(holder(p)) {
				return nil, nil // it uses them already: others would not reach it
			}
		}
	}
	addrs, err := c.alloc.Allocate(holder(p), node.Name)
	if err != nil {
		c.Recorder.Eventf(p, corev1.EventTypeWarning, "NoAddressAvailable", "%v", err)
		klog.InfoS("Cannot give pod an address", "pod", kube.PodKey(p), "reason", err)
		return nil, nil
	}
	network := pod.Network(addrs, node.Subnets)
	if err := c.announce(ctx, p, network); err != nil {
		return nil, err
	}
	return &network, nil
}

// awaited tells whether the annotation in the lister is older than the one
// that was written last.
func (c *Controller) awaited(p *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.replaced[holder(p)]
	if ok && p.Annotations[kube.AnnotationPodNetworks] != before {
		delete(c.replaced, holder(p))
		return false
	}
	return ok
}

// announce writes the addresses of a pod into its annotation.
func (c *Controller) announce(ctx context.Context, p *corev1.Pod, network topology.PodNetwork) error {
	if c.awaited(p) {
		return nil
	}
	value := kube.FormatPodNetwork(network)
	err := kube.PatchPod(ctx, c.Client, p, kube.Metadata{
		Annotations: map[string]*string{kube.AnnotationPodNetworks: kube.Value(value)},
	})
	if apierrors.IsNotFound(err) {
		return nil // its deletion is on the way here
	}
	if err != nil {
		return err
	}
	if before := p.Annotations[kube.AnnotationPodNetworks]; before != value {
		c.mu.Lock()
		c.replaced[holder(p)] = before
		c.mu.Unlock()
	}
	klog.V(2).InfoS("Gave pod addresses", "pod", kube.PodKey(p), "node", p.Spec.NodeName, "addresses", network.Addrs)
	return nil
}

func (c *Controller) forget(h pod.Holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.replaced, h)
}

// apply writes the rows of a pod.
func (c *Controller) apply(ctx context.Context, key string, rows []nb.Row) error {
	stats, err := c.Writer.Apply(ctx, pod.Owner(key), rows)
	if err != nil {
		return err
	}
	if stats.Zero() {
		klog.V(4).InfoS("Pod rows are up to date", "pod", key)
		return nil
	}
	klog.V(2).InfoS("Wrote pod rows", "pod", key,
		"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	return nil
}
