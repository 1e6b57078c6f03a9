package master

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// choosers returns the selectors of all EgressIPs, the best right first.
func (c *Controller) choosers() []egressip.Selector {
	c.mu.Lock()
	known := c.selectors
	c.mu.Unlock()
	if known != nil {
		return known
	}
	objs, err := c.deps.EgressIPs.Lister().List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Cannot list EgressIPs") // memory does not fail
	}
	selectors := make([]egressip.Selector, 0, len(objs))
	for _, obj := range objs {
		if s, err := egressip.NewSelector(obj); err == nil { // its status tells the error
			selectors = append(selectors, s)
		}
	}
	egressip.SortSelectors(selectors)
	return selectors
}

// refreshChoosers reads the selectors again. It is called for every event about
// one, before the pods it concerns are enqueued.
func (c *Controller) refreshChoosers() {
	c.mu.Lock()
	c.selectors = nil
	c.mu.Unlock()
	selectors := c.choosers()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.selectors = selectors
}

// choose returns the EgressIPs that choose a pod, the one that has it first.
func (c *Controller) choose(p *corev1.Pod) []string {
	selectors := c.choosers()
	if len(selectors) == 0 {
		return nil
	}
	ns, err := c.deps.Namespaces.Lister().Get(p.Namespace)
	if err != nil {
		return nil // its event brings its pods back
	}
	return egressip.Of(selectors, ns.Labels, p.Labels)
}

// chosen returns the keys of the pods that a selector chooses.
func (c *Controller) chosen(s egressip.Selector) []string {
	pods, err := c.deps.Pods.Lister().List(labels.Everything())
	if err != nil {
		return nil // memory does not fail
	}
	var keys []string
	spaces := map[string]map[string]string{}
	for _, p := range pods {
		space, ok := spaces[p.Namespace]
		if !ok {
			if ns, err := c.deps.Namespaces.Lister().Get(p.Namespace); err == nil {
				space = ns.Labels
			}
			spaces[p.Namespace] = space
		}
		if s.Selects(space, p.Labels) {
			keys = append(keys, p.Namespace+"/"+p.Name)
		}
	}
	return keys
}
