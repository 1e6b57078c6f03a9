package master

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/pod"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// reconcilePod reconciles annotation, port and addresses of one pod.
func (c *Controller) reconcilePod(ctx context.Context, key string) error {
	// Read before the lister: if there is no note, the lister is up to date.
	was := c.note(key)
	p, err := c.lookup(key)
	if err != nil {
		return err
	}
	if p == nil {
		if rest := time.Until(c.mirrorless[key]); rest > 0 && !c.exists(key) {
			c.queue.EnqueueAfter(rest, key)
			return nil
		}
		return c.deletePod(ctx, pod.Holder{Key: key})
	}
	// An earlier pod of the same name, as with a StatefulSet, is removed
	// first: the port of the new one must not inherit state of the old one. Egress may
	// use its addresses for longer.
	if len(c.alloc.Others(holder(p))) > 0 {
		if err := c.deletePod(ctx, holder(p)); err != nil {
			return err
		}
	}
	node, err := c.node(p.Spec.NodeName)
	if err != nil {
		return err
	}
	if node == nil {
		klog.V(4).InfoS("Pod waits for the subnets of its node", "pod", key, "node", p.Spec.NodeName)
		return c.detach(ctx, p)
	}
	if !slices.Equal(c.alloc.Subnets(node.Name), node.Subnets) {
		// The node's key will pass them to the allocator, and enqueue the pod again. Until then the pod, which may be
		// running, keeps its port.
		klog.V(4).InfoS("Pod waits for the key of its node", "pod", key, "node", node.Name)
		return nil
	}
	network, err := c.network(ctx, p, node, was)
	if err != nil {
		return err
	}
	if network == nil {
		return c.detach(ctx, p)
	}
	what := pod.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(kube.PodUID(p)), Static: kube.IsMirror(p), Network: *network}
	rows := pod.Rows(c.Config, what, *node)
	if c.Egress == nil {
		if err := c.unmark(ctx, p); err != nil {
			return err
		}
		stats, err := c.Writer.Apply(ctx, pod.Owner(key), rows)
		return c.applied(key, node.Name, stats, err)
	}
	stats, err := c.Egress.Attach(ctx, p, *network, pod.Owner(key), rows)
	return c.applied(key, node.Name, stats, err)
}

// detach deletes the rows of a pod that cannot have any now. The pod keeps its
// addresses.
func (c *Controller) detach(ctx context.Context, p *corev1.Pod) error {
	return c.deleteRows(ctx, kube.PodKey(p), p.Spec.NodeName)
}

// deleteRows deletes the rows of a pod. It reports that they are gone even if there were none: an
// earlier attempt, or somebody else, may have deleted them.
func (c *Controller) deleteRows(ctx context.Context, key, node string) error {
	stats, err := c.Writer.Apply(ctx, pod.Owner(key), nil)
	if err == nil && stats.Zero() {
		c.addressesChanged(key, node)
	}
	return c.applied(key, node, stats, err)
}

// unmark removes the pending annotation from a pod if no egress feature is enabled.
func (c *Controller) unmark(ctx context.Context, p *corev1.Pod) error {
	err := kube.PatchPod(ctx, c.Client, p, kube.Metadata{
		Annotations: map[string]*string{kube.AnnotationEgressPending: nil},
	})
	if apierrors.IsNotFound(err) {
		return nil // its deletion event is on the way
	}
	return err
}

// deletePod deletes the rows of a pod and then releases everything that its incarnations
// other than except hold, or as soon as Egress no longer uses their addresses.
func (c *Controller) deletePod(ctx context.Context, except pod.Holder) error {
	if !c.portRemoved(except) {
		if err := c.deleteRows(ctx, except.Key, ""); err != nil {
			return err
		}
	}
	for _, h := range c.alloc.Others(except) {
		if c.uses(h) {
			continue
		}
		c.forget(h)
		c.queue.Enqueue(c.alloc.Release(h)...)
		klog.V(2).InfoS("Released addresses of pod", "pod", h.Key, "uid", h.UID)
	}
	return nil
}

// node returns a node once it has subnets, and nil before.
func (c *Controller) node(name string) (*topology.Node, error) {
	n, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	node, _ := c.decoded.Node(n) // the network controller reports parse errors
	if len(node.Subnets) == 0 {
		return nil, nil
	}
	return &node, nil
}

// network returns the addresses of a pod, previously assigned or new ones, and
// makes sure that the annotation announces them. If the pod cannot have any, it returns
// nil and emits an Event.
func (c *Controller) network(ctx context.Context, p *corev1.Pod, node *topology.Node, was replaced) (*topology.PodNetwork, error) {
	who := holder(p)
	if !c.alloc.IsReserved(who) {
		if taken := c.resume(p, *node); taken != nil {
			c.Recorder.Eventf(p, corev1.EventTypeWarning, reasonRefused, "%v", taken)
			klog.InfoS("Pod runs with an address that it cannot have", "pod", who.Key, "reason", taken)
			return nil, nil // at another address, others would not reach it
		}
	}
	addrs, err := c.alloc.Allocate(who, node.Name)
	if err != nil {
		c.Recorder.Eventf(p, corev1.EventTypeWarning, "NoAddressAvailable", "%v", err)
		klog.InfoS("Cannot give pod an address", "pod", who.Key, "reason", err)
		if len(addrs) == 0 || !running(p) { // a pod that started without an address of a family would never get it
			return nil, nil
		}
	}
	network := pod.Network(addrs, node.Subnets)
	if mac := c.alloc.MAC(who); mac != "" {
		network.MAC = mac
	}
	if was.shownBy(p) {
		return &network, nil
	}
	if err := c.announce(ctx, p, network); err != nil {
		return nil, err
	}
	return &network, nil
}

// resume reserves the known previous addresses of a pod. If the pod is running
// with an address that another pod has, it returns an error.
func (c *Controller) resume(p *corev1.Pod, node topology.Node) error {
	network, ok := c.known(p, node)
	if !ok {
		return nil
	}
	err := c.alloc.Reserve(holder(p), node.Name, network.Addrs)
	switch {
	case err == nil:
		c.keepMAC(holder(p), network.Addrs, network.MAC, node)
	case errors.Is(err, pod.ErrTaken) && running(p):
		return err
	}
	return nil
}

// known returns the previous addresses of a pod from trustworthy sources: the
// pod's port in the database or, if there is none, the kubelet that runs it.
// Users who may edit the pod can write anything into its annotation; only the
// MAC address is taken from there, and keepMAC checks that no other pod has it.
func (c *Controller) known(p *corev1.Pod, node topology.Node) (topology.PodNetwork, bool) {
	given, ok := pod.AddressesIn(c.Writer.Rows(pod.Owner(kube.PodKey(p))))
	if ok && given.UID == string(kube.PodUID(p)) {
		if network, ok := given.Network(node.Subnets); ok {
			return network, true
		}
	}
	network, ok := topology.PodAddresses{Addrs: kube.PodAddresses(p)}.Network(node.Subnets)
	if !ok {
		return topology.PodNetwork{}, false
	}
	if announced, ok, err := kube.PodNetwork(p); ok && err == nil {
		network.MAC = announced.MAC
	}
	return network, true
}

// keepMAC lets a pod keep the MAC address that it is running with if that is not derived
// from its addresses (other implementations derive it from IPv6 addresses) and does not
// conflict with others.
func (c *Controller) keepMAC(who pod.Holder, addrs []netip.Prefix, mac string, node topology.Node) {
	if mac == "" || !c.alloc.IsReserved(who) || strings.EqualFold(mac, pod.Network(addrs, node.Subnets).MAC) {
		return
	}
	err := fmt.Errorf("%w: it is the management port's", pod.ErrTaken)
	if !strings.EqualFold(mac, node.ManagementMAC) {
		err = c.alloc.KeepMAC(who, mac)
	}
	if err != nil {
		klog.InfoS("Pod cannot keep its MAC address", "pod", who.Key, "mac", mac, "reason", err)
	}
}

// replaced is the state of a pod's annotation before it was written: as long as the
// lister shows that state, the written one is awaited.
type replaced struct {
	pod             pod.Holder // the zero Holder: nothing is awaited
	before, version string
}

// shownBy reports whether p is the state on which the write was based. A state with
// another version may also precede the write, or it may be a later one in which
// somebody has reverted the annotation.
func (r replaced) shownBy(p *corev1.Pod) bool {
	return r.pod == holder(p) && r.before == p.Annotations[kube.AnnotationPodNetworks] && r.version == p.ResourceVersion
}

// note returns the recorded state of the pod of a key.
func (c *Controller) note(key string) replaced {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaced[key]
}

// arrived ends the wait for a write when the lister no longer shows the state
// before it. Reconciling could miss that moment: by the time it reads the pod,
// somebody may have reverted the annotation.
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

// announce makes the annotation of a pod announce its addresses. An equivalent annotation
// stays as it is; changes by others are corrected.
func (c *Controller) announce(ctx context.Context, p *corev1.Pod, network topology.PodNetwork) error {
	value := kube.FormatPodNetwork(network)
	annotations := map[string]*string{}
	before, there := p.Annotations[kube.AnnotationPodNetworks]
	announced, _, err := kube.PodNetwork(p)
	if !there || err != nil || !announced.Same(network) {
		annotations[kube.AnnotationPodNetworks] = kube.Value(value)
	}
	// A pod with a port may have started, so a pending annotation would come too late.
	if c.Egress != nil && !running(p) && len(c.Writer.Rows(pod.Owner(kube.PodKey(p)))) == 0 {
		mark, err := c.Egress.Pending(p)
		if err != nil {
			return err
		}
		if mark != "" {
			annotations[kube.AnnotationEgressPending] = kube.Value(mark)
		}
	}
	if len(annotations) == 0 {
		return nil
	}
	if there && annotations[kube.AnnotationPodNetworks] != nil {
		c.refuse(p, network, err)
	}
	// Recorded before the write, so that the handler of its event finds it.
	if annotations[kube.AnnotationPodNetworks] != nil {
		c.mu.Lock()
		c.replaced[kube.PodKey(p)] = replaced{holder(p), before, p.ResourceVersion}
		c.mu.Unlock()
	}
	if err := kube.PatchPod(ctx, c.Client, p, kube.Metadata{Annotations: annotations, Unseen: &c.unseen}); err != nil {
		c.forget(holder(p))
		if apierrors.IsNotFound(err) {
			return nil // its deletion event is on the way
		}
		return err
	}
	klog.V(2).InfoS("Announced addresses of pod", "pod", kube.PodKey(p), "node", p.Spec.NodeName, "addresses", network.Addrs)
	return nil
}

// reasonRefused is the reason of Events about addresses that a pod cannot have.
const reasonRefused = "AddressRefused"

// refuse reports that a pod's annotation is being corrected.
func (c *Controller) refuse(p *corev1.Pod, network topology.PodNetwork, err error) {
	if err == nil {
		err = fmt.Errorf("annotation %s does not match the pod's assigned addresses", kube.AnnotationPodNetworks)
	}
	c.Recorder.Eventf(p, corev1.EventTypeWarning, reasonRefused, "%v; the pod has %v, and the annotation is corrected",
		err, network.Addrs)
	klog.InfoS("Corrected the annotation of a pod", "pod", kube.PodKey(p), "reason", err, "addresses", network.Addrs)
}

func (c *Controller) forget(h pod.Holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replaced[h.Key].pod == h {
		delete(c.replaced, h.Key)
	}
}

// applied logs the written rows and reports that they changed, even if some could not be written.
// For a deleted pod the node is "": readers of its rows get its event.
func (c *Controller) applied(key, node string, stats nb.Stats, err error) error {
	if !stats.Zero() {
		klog.V(2).InfoS("Wrote pod rows", "pod", key,
			"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
		c.addressesChanged(key, node)
	} else if err == nil {
		klog.V(4).InfoS("Pod rows are up to date", "pod", key)
	}
	return err
}

// addressesChanged calls the functions of OnAddressesChanged.
func (c *Controller) addressesChanged(key, node string) {
	for _, f := range c.onAddressesChanged {
		f(key, node)
	}
}
