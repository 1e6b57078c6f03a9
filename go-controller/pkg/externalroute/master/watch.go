package master

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

var decideAll = []string{all}

func (c *Controller) watchDecide() error {
	c.decide.Seed(func() []string { return decideAll })
	if c.deps.Health != nil {
		c.deps.Health.Subscribe(func(string) { c.decide.Enqueue(all) })
	}
	return errors.Join(
		c.decide.Watch(c.deps.Policies.Informer(), func(old, new any) []string {
			o, _ := old.(*v1.AdminPolicyBasedExternalRoute)
			n, _ := new.(*v1.AdminPolicyBasedExternalRoute)
			if o != nil && n != nil && o.UID == n.UID && o.Generation == n.Generation && o.Generation != 0 {
				return nil // only its status changed
			}
			return decideAll
		}),
		c.decide.Watch(c.deps.Namespaces.Informer(), func(old, new any) []string {
			o, _ := old.(*corev1.Namespace)
			n, _ := new.(*corev1.Namespace)
			if o != nil && n != nil && maps.Equal(o.Labels, n.Labels) &&
				same(o.Annotations, n.Annotations, kube.AnnotationRoutingExternalGWs, kube.AnnotationBFDEnabled) {
				return nil
			}
			return decideAll
		}),
		c.decide.Watch(c.deps.Nodes.Informer(), func(old, new any) []string {
			o, _ := old.(*corev1.Node)
			n, _ := new.(*corev1.Node)
			if o != nil && n != nil && kube.NodeReady(o) == kube.NodeReady(n) && kube.NodeReadyUnknown(o) == kube.NodeReadyUnknown(n) &&
				same(o.Annotations, n.Annotations, kube.AnnotationL3Gateway, kube.AnnotationPrimaryIfAddr, kube.AnnotationHostAddresses) {
				return nil
			}
			return decideAll
		}),
		c.decide.Watch(c.deps.Pods.Informer(), c.gatewayPodKeys),
	)
}

func same(a, b map[string]string, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return a[k] != b[k] })
}

// gatewayPodKeys triggers a decision if a pod may be a gateway and a relevant
// property changed.
func (c *Controller) gatewayPodKeys(old, new any) []string {
	o, _ := old.(*corev1.Pod)
	n, _ := new.(*corev1.Pod)
	if o != nil && n != nil && o.UID == n.UID && candidate(o) == candidate(n) && certain(o) == certain(n) &&
		maps.Equal(o.Labels, n.Labels) && slices.Equal(kube.HostAddrs(o), kube.HostAddrs(n)) &&
		same(o.Annotations, n.Annotations, kube.AnnotationRoutingNamespaces, kube.AnnotationRoutingNetwork,
			kube.AnnotationBFDEnabled, kube.AnnotationNetworkStatus) {
		return nil
	}
	if !candidate(o) && !candidate(n) {
		return nil // it neither is nor was a gateway
	}
	announces := func(p *corev1.Pod) bool { return p != nil && len(kube.RoutingNamespaces(p)) > 0 }
	if announces(o) || announces(n) || c.sought(n) || (n == nil || o != nil && !maps.Equal(o.Labels, n.Labels)) && c.sought(o) {
		return decideAll
	}
	return nil
}

// candidate reports whether a pod may be a gateway; certain whether it may be one whatever
// the state of its node.
func candidate(p *corev1.Pod) bool {
	return p != nil && kube.ReadyNow(p, func(string) bool { return true })
}

func certain(p *corev1.Pod) bool {
	return p != nil && kube.ReadyNow(p, func(string) bool { return false })
}

// sought reports whether any policy looks for gateways among pods with the labels of p.
func (c *Controller) sought(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	policies, err := c.policies.List(labels.Everything())
	return err != nil || slices.ContainsFunc(policies, func(policy *v1.AdminPolicyBasedExternalRoute) bool {
		return slices.ContainsFunc(policy.Spec.NextHops.Dynamic, func(d v1.DynamicHop) bool {
			selector, err := metav1.LabelSelectorAsSelector(&d.PodSelector)
			return err == nil && selector.Matches(labels.Set(p.Labels)) // an invalid one selects nothing
		})
	})
}

func (c *Controller) watchNodes() error {
	c.nodes.Seed(func() []string {
		var names []string
		nodes, _ := c.nodeLister.List(labels.Everything()) // reads memory and cannot fail
		for _, n := range nodes {
			names = append(names, n.Name)
		}
		return c.pend(names...)
	})
	c.nodes.Seed(func() []string { return c.pend(nb.Objects(c.deps.Writer, externalroute.Feature)...) })
	nb.EnqueueDrift(c.nodes, c.deps.Writer, externalroute.Feature)
	for _, set := range c.steered.sets {
		set.SubscribeAddrs(func(addrs []netip.Addr) { c.nodes.Enqueue(c.pend(c.steered.affected(addrs)...)...) })
	}
	return errors.Join(
		c.nodes.Watch(c.deps.Nodes.Informer(), func(old, new any) []string {
			o, _ := old.(*corev1.Node)
			n, _ := new.(*corev1.Node)
			switch {
			case o == nil:
				return []string{n.Name}
			case n == nil:
				return []string{o.Name}
			case same(o.Annotations, n.Annotations, kube.AnnotationNodeSubnets, kube.AnnotationGatewayLRPIfAddr,
				kube.AnnotationChassisID, kube.AnnotationL3Gateway, kube.AnnotationPrimaryIfAddr, kube.AnnotationHostAddresses):
				return nil
			}
			return []string{n.Name}
		}),
		c.nodes.Watch(c.deps.Pods.Informer(), c.podNodes),
	)
}

// podNodes returns the nodes whose rows an event of a pod may change.
func (c *Controller) podNodes(old, new any) []string {
	o, _ := old.(*corev1.Pod)
	n, _ := new.(*corev1.Pod)
	if o != nil && n != nil && o.UID == n.UID && o.Spec.NodeName == n.Spec.NodeName &&
		kube.NeedsNetwork(o) == kube.NeedsNetwork(n) {
		return nil
	}
	var nodes []string
	for _, p := range []*corev1.Pod{o, n} {
		if p == nil || p.Spec.NodeName == "" || p.Spec.HostNetwork {
			continue
		}
		c.countLater(p.Namespace)
		if c.concerns(p.Namespace) && !slices.Contains(nodes, p.Spec.NodeName) {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes
}

// concerns reports whether the pods of a namespace have rows. If a namespace gets
// gateways later, its pods' nodes are enqueued then.
func (c *Controller) concerns(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deps.Config.DisableSNATMultipleGWs || len(c.plan.Hops[namespace]) > 0
}

// countLater has the pods of a namespace counted again for the policies that select it.
func (c *Controller) countLater(namespace string) {
	c.mu.Lock()
	policies := c.byNamespace[namespace]
	c.mu.Unlock()
	c.statuses.EnqueueAfter(countDelay, policies...)
}

// nodesOf returns the nodes of the pods in the namespaces.
func (c *Controller) nodesOf(namespaces []string) []string {
	nodes := map[string]bool{}
	for _, ns := range namespaces {
		for _, p := range c.podsIn(ns) {
			if kube.NeedsNetwork(p) {
				nodes[p.Spec.NodeName] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

func (c *Controller) podsIn(namespace string) []*corev1.Pod {
	return kube.PodsIndexed(c.pods, cache.NamespaceIndex, namespace)
}

func (c *Controller) watchReports() error {
	c.statuses.Seed(func() []string { return c.deps.Policies.Informer().GetIndexer().ListKeys() })
	c.annotations.Seed(func() []string { return c.deps.Namespaces.Informer().GetIndexer().ListKeys() })
	return errors.Join(
		// A status changed by somebody else is written again.
		c.statuses.Watch(c.deps.Policies.Informer(), func(_, new any) []string {
			if n, ok := new.(*v1.AdminPolicyBasedExternalRoute); ok {
				return []string{n.Name}
			}
			return nil
		}),
		c.annotations.Watch(c.deps.Namespaces.Informer(), func(old, new any) []string {
			o, _ := old.(*corev1.Namespace)
			n, _ := new.(*corev1.Namespace)
			if n == nil || !c.unseen.Follows(old, new) && o != nil && same(o.Annotations, n.Annotations, kube.AnnotationGatewaysInUse) {
				return nil
			}
			return []string{n.Name}
		}),
	)
}
