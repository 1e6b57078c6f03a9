package master

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// podStartTimeout is how long the start of a pod waits for policies that are not in
// force. Afterwards the pod starts, and its traffic is dropped until they are.
const podStartTimeout = 5 * time.Second

// revalidateDelay is how long a chassis may continue to use cached datapath flows that
// were replaced. ovn-controller does not know about them, and hence the barrier
// does not either. Open vSwitch revalidates them at the latest after
// other_config:max-revalidator, or max-idle if that is less: 500 ms by default, and
// not meant to be raised. The rest is a generous allowance for the pass itself.
const revalidateDelay = time.Second

func (c *Controller) watchPods() error {
	nb.Bind(c.pods, c.deps.Writer, egressip.Feature)
	c.pods.Seed(func() []string {
		c.choosing.Store(true) // from here on, events enqueue the pods
		var keys []string
		for _, obj := range c.deps.Pods.Informer().GetIndexer().List() {
			if p, ok := obj.(*corev1.Pod); ok && (isPending(p) || kube.NeedsNetwork(p) && len(c.choose(p)) > 0) {
				keys = append(keys, kube.PodKey(p))
			}
		}
		return keys
	})
	if err := c.pods.Watch(c.deps.EgressIPs.Informer(), c.podsOfEgressIP); err != nil {
		return err
	}
	if err := c.pods.Watch(c.deps.Namespaces.Informer(), c.podsOfNamespace); err != nil {
		return err
	}
	return c.pods.Watch(c.deps.Pods.Informer(), c.podKeys)
}

// podKeys returns the keys affected by a change of a pod. Whoever has removed the pending annotation, the pod's gate is
// open from then on.
func (c *Controller) podKeys(old, new any) []string {
	o, _ := old.(*corev1.Pod)
	n, _ := new.(*corev1.Pod)
	if o != nil && n != nil && o.UID == n.UID && isPending(o) && !isPending(n) {
		c.opened(kube.PodKey(n), n)
	}
	switch {
	case o == nil:
		return []string{kube.PodKey(n)}
	case n != nil && o.UID == n.UID && maps.Equal(o.Labels, n.Labels) && kube.NeedsNetwork(o) == kube.NeedsNetwork(n) &&
		isPending(o) == isPending(n):
		return nil
	}
	return []string{kube.PodKey(o)}
}

func (c *Controller) podsOfNamespace(old, new any) []string {
	o, _ := old.(*corev1.Namespace)
	n, _ := new.(*corev1.Namespace)
	if o != nil && n != nil && maps.Equal(o.Labels, n.Labels) {
		return nil
	}
	if n == nil {
		n = o
	}
	c.unknown.known(namespaceKey(n.Name))
	keys, err := c.deps.Pods.Informer().GetIndexer().IndexKeys(cache.NamespaceIndex, n.Name)
	if err != nil {
		klog.ErrorS(err, "Cannot list the pods of a namespace", "namespace", n.Name) // cannot happen: the informer factory creates this index
	}
	return keys
}

// podsOfEgressIP returns the pods affected by a change of an EgressIP.
func (c *Controller) podsOfEgressIP(old, new any) []string {
	o, _ := old.(*v1.EgressIP)
	n, _ := new.(*v1.EgressIP)
	c.updateSelection(nameOf(o, n))
	if o != nil && n != nil && o.UID == n.UID && equality.Semantic.DeepEqual(o.Spec, n.Spec) {
		if slices.EqualFunc(o.Status.Programmed, n.Status.Programmed, func(a, b v1.ProgrammedStatus) bool {
			a.Awaiting, b.Awaiting = nil, nil // only the status depends on it
			return egressip.SameNodeStatus(a, b)
		}) {
			return nil
		}
		return c.members.Selected(n.Name)
	}
	var keys []string
	for _, e := range []*v1.EgressIP{o, n} {
		if e == nil {
			continue
		}
		keys = append(keys, c.members.Selected(e.Name)...)
		if !c.choosing.Load() {
			continue // all selected pods are start-up keys
		}
		if s, err := egressip.NewSelector(e); err == nil {
			keys = append(keys, c.chosen(s)...)
		}
	}
	return keys
}

func nameOf(old, new *v1.EgressIP) string {
	if new == nil {
		return old.Name
	}
	return new.Name
}

func isPending(p *corev1.Pod) bool {
	_, ok := p.Annotations[kube.AnnotationEgressPending]
	return ok
}
