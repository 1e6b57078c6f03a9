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
	// Looked at before the lister: without a note what the lister shows is up to date.
	was := c.note(key)
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
	network, err := c.network(ctx, p, node, was)
	if err != nil {
		return err
	}
	if network == nil {
		return c.apply(ctx, key, nil)
	}
	what := pod.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Network: *network}
	if c.Egress != nil && c.Config.DisableSNATMultipleGWs {
		for _, a := range network.Addrs {
			if c.Egress.Translates(key, node.Name, a.Addr()) {
				what.Translated = append(what.Translated, a.Addr())
			}
		}
	}
	rows := pod.Rows(c.Config, what, *node)
	if c.Egress == nil {
		if err := c.unmark(ctx, p); err != nil {
			return err
		}
		return c.apply(ctx, key, rows)
	}
	stats, err := c.Egress.Attach(ctx, p, *network, pod.Owner(key), rows)
	return c.applied(key, stats, err)
}

// unmark takes the mark of an egress feature that is not there off a pod.
func (c *Controller) unmark(ctx context.Context, p *corev1.Pod) error {
	err := kube.PatchPod(ctx, c.Client, p, kube.Metadata{
		Annotations: map[string]*string{kube.AnnotationEgressPending: nil},
	})
	if apierrors.IsNotFound(err) {
		return nil // its deletion is on the way here
	}
	return err
}

// retire deletes the rows of a pod and then releases what all its incarnations
// but one hold.
func (c *Controller) retire(ctx context.Context, except pod.Holder) error {
	if err := c.apply(ctx, except.Key, nil); err != nil {
		return err
	}
	if c.Egress != nil {
		c.Egress.Detached(except.Key)
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
func (c *Controller) network(ctx context.Context, p *corev1.Pod, node *topology.Node, was replaced) (*topology.PodNetwork, error) {
	awaited := was.shownBy(p)
	if !awaited {
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
	if awaited {
		return &network, nil
	}
	if err := c.announce(ctx, p, network); err != nil {
		return nil, err
	}
	return &network, nil
}

// replaced is what the annotation of a pod was when it was written: as long as the
// lister shows that, it is waited for what was written.
type replaced struct {
	pod    pod.Holder // the zero Holder: nothing is waited for
	before string
}

func (r replaced) shownBy(p *corev1.Pod) bool {
	return r.pod == holder(p) && r.before == p.Annotations[kube.AnnotationPodNetworks]
}

// note returns what is noted of the pod of a key.
func (c *Controller) note(key string) replaced {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaced[key]
}

// arrived ends the wait for what was written, when the lister has left behind what
// was there before. Reconciling could miss that moment: when it gets to look,
// somebody may have made the annotation again what it was.
func (c *Controller) arrived(old, new any) {
	before, _ := old.(*corev1.Pod)
	after, _ := new.(*corev1.Pod)
	if before == nil || after == nil || before.Annotations[kube.AnnotationPodNetworks] == after.Annotations[kube.AnnotationPodNetworks] {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replaced[kube.PodKey(before)].shownBy(before) {
		delete(c.replaced, kube.PodKey(before))
	}
}

// announce writes the addresses of a pod into its annotation.
func (c *Controller) announce(ctx context.Context, p *corev1.Pod, network topology.PodNetwork) error {
	value := kube.FormatPodNetwork(network)
	annotations := map[string]*string{kube.AnnotationPodNetworks: kube.Value(value)}
	if c.Egress != nil && !running(p) {
		if mark := c.Egress.Pending(p); mark != "" {
			annotations[kube.AnnotationEgressPending] = kube.Value(mark)
		}
	}
	// Noted before it is written, so that the event about it finds the note.
	if before := p.Annotations[kube.AnnotationPodNetworks]; before != value {
		c.mu.Lock()
		c.replaced[kube.PodKey(p)] = replaced{holder(p), before}
		c.mu.Unlock()
	}
	if err := kube.PatchPod(ctx, c.Client, p, kube.Metadata{Annotations: annotations}); err != nil {
		c.forget(holder(p))
		if apierrors.IsNotFound(err) {
			return nil // its deletion is on the way here
		}
		return err
	}
	klog.V(2).InfoS("Gave pod addresses", "pod", kube.PodKey(p), "node", p.Spec.NodeName, "addresses", network.Addrs)
	return nil
}

func (c *Controller) forget(h pod.Holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replaced[h.Key].pod == h {
		delete(c.replaced, h.Key)
	}
}

// apply writes the rows of a pod.
func (c *Controller) apply(ctx context.Context, key string, rows []nb.Row) error {
	stats, err := c.Writer.Apply(ctx, pod.Owner(key), rows)
	return c.applied(key, stats, err)
}

// applied tells what was written.
func (c *Controller) applied(key string, stats nb.Stats, err error) error {
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
