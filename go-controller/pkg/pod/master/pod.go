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

// reconcilePod makes annotation, port and addresses of one pod be as they should.
func (c *Controller) reconcilePod(ctx context.Context, key string) error {
	// Looked at before the lister: without a note what the lister shows is up to date.
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
	// An earlier pod of the same name, as a StatefulSet leaves it, is retired
	// first: the port of the new one must not inherit what was said of the old.
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

// detach deletes the rows of a pod that cannot have any now. Its addresses stay its
// own.
func (c *Controller) detach(ctx context.Context, p *corev1.Pod) error {
	key := kube.PodKey(p)
	stats, err := c.Writer.Apply(ctx, pod.Owner(key), nil)
	if err == nil && !stats.Zero() && c.Egress != nil {
		c.Egress.Detached(key)
	}
	return c.applied(key, p.Spec.NodeName, stats, err)
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

// deletePod deletes the rows of a pod and then releases what all its incarnations
// but one hold.
func (c *Controller) deletePod(ctx context.Context, except pod.Holder) error {
	stats, err := c.Writer.Apply(ctx, pod.Owner(except.Key), nil)
	if err := c.applied(except.Key, "", stats, err); err != nil {
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
	node, _ := c.decoded.Node(n) // the network's controller reports what does not parse
	if len(node.Subnets) == 0 || !slices.Equal(c.alloc.Subnets(name), node.Subnets) {
		return nil, nil
	}
	return &node, nil
}

// network returns the addresses of a pod: those it has been given before, or
// new ones, and sees to it that the annotation tells of them. It returns nil, and
// tells the user, where the pod cannot have any.
func (c *Controller) network(ctx context.Context, p *corev1.Pod, node *topology.Node, was replaced) (*topology.PodNetwork, error) {
	who := holder(p)
	if !c.alloc.IsReserved(who) {
		if taken := c.resume(p, *node); taken != nil {
			c.Recorder.Eventf(p, corev1.EventTypeWarning, reasonRefused, "%v", taken)
			klog.InfoS("Pod runs with an address that it cannot have", "pod", who.Key, "reason", taken)
			return nil, nil // others would not reach it at another one
		}
	}
	addrs, err := c.alloc.Allocate(who, node.Name)
	if err != nil {
		c.Recorder.Eventf(p, corev1.EventTypeWarning, "NoAddressAvailable", "%v", err)
		klog.InfoS("Cannot give pod an address", "pod", who.Key, "reason", err)
		return nil, nil
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

// resume has a pod hold what it is known to have been given before. Where it runs
// with an address that another one has, it returns the error that says so.
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

// known returns what a pod has been given before, by those who can be believed: the
// pod's port in the database, or, where there is none, the kubelet that runs it.
// Whoever may edit the pod can write what they like into its annotation; only the
// MAC address is taken from there, which keepMAC looks at, where nobody else has it.
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

// keepMAC has a pod keep the MAC address that it runs with where that does not follow
// from its addresses, as others derive it from IPv6 addresses, and where that harms
// nobody.
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

// replaced is what the annotation of a pod was when it was written: as long as the
// lister shows that, it is waited for what was written.
type replaced struct {
	pod             pod.Holder // the zero Holder: nothing is waited for
	before, version string
}

// shownBy reports whether a state of the pod is the one that was written upon. One with
// another version may be from before that as well, or it is a later one in which
// somebody has made the annotation what it was.
func (r replaced) shownBy(p *corev1.Pod) bool {
	return r.pod == holder(p) && r.before == p.Annotations[kube.AnnotationPodNetworks] && r.version == p.ResourceVersion
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

// announce makes the annotation of a pod tell its addresses. One that tells them
// in other words stays as it is; what somebody else has made of it is put right.
func (c *Controller) announce(ctx context.Context, p *corev1.Pod, network topology.PodNetwork) error {
	value := kube.FormatPodNetwork(network)
	annotations := map[string]*string{}
	before, there := p.Annotations[kube.AnnotationPodNetworks]
	announced, _, err := kube.PodNetwork(p)
	if !there || err != nil || !announced.Same(network) {
		annotations[kube.AnnotationPodNetworks] = kube.Value(value)
	}
	// A pod with a port may have started, and a mark would come too late.
	if c.Egress != nil && !running(p) && len(c.Writer.Rows(pod.Owner(kube.PodKey(p)))) == 0 {
		if mark := c.Egress.Pending(p); mark != "" {
			annotations[kube.AnnotationEgressPending] = kube.Value(mark)
		}
	}
	if len(annotations) == 0 {
		return nil
	}
	if there && annotations[kube.AnnotationPodNetworks] != nil {
		c.refuse(p, network, err)
	}
	// Noted before it is written, so that the event about it finds the note.
	if annotations[kube.AnnotationPodNetworks] != nil {
		c.mu.Lock()
		c.replaced[kube.PodKey(p)] = replaced{holder(p), before, p.ResourceVersion}
		c.mu.Unlock()
	}
	if err := kube.PatchPod(ctx, c.Client, p, kube.Metadata{Annotations: annotations, Unseen: &c.unseen}); err != nil {
		c.forget(holder(p))
		if apierrors.IsNotFound(err) {
			return nil // its deletion is on the way here
		}
		return err
	}
	klog.V(2).InfoS("Announced addresses of pod", "pod", kube.PodKey(p), "node", p.Spec.NodeName, "addresses", network.Addrs)
	return nil
}

// reasonRefused is the reason of Events about addresses that a pod cannot have.
const reasonRefused = "AddressRefused"

// refuse tells that what the annotation of a pod says is put right.
func (c *Controller) refuse(p *corev1.Pod, network topology.PodNetwork, err error) {
	if err == nil {
		err = fmt.Errorf("annotation %s is not what the pod has been given", kube.AnnotationPodNetworks)
	}
	c.Recorder.Eventf(p, corev1.EventTypeWarning, reasonRefused, "%v; the pod has %v, and the annotation is written anew",
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

// applied tells what was written, also those who read it. The node of a pod that is
// gone is "": who reads its rows has heard of that.
func (c *Controller) applied(key, node string, stats nb.Stats, err error) error {
	if err != nil {
		return err
	}
	if stats.Zero() {
		klog.V(4).InfoS("Pod rows are up to date", "pod", key)
		return nil
	}
	klog.V(2).InfoS("Wrote pod rows", "pod", key,
		"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	for _, f := range c.given {
		f(key, node)
	}
	return nil
}
