package master

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// byLabel is the index of namespaces by label, and of pods by namespace and
// label.
const byLabel = "egressip-by-label"

// byHeld is the index of EgressIPs by the addresses in their nodes' status entries.
const byHeld = "egressip-by-held"

// byRecorded is the index of nodes by the addresses on secondary networks that they may have on their links.
const byRecorded = "node-by-recorded"

// addIndexes adds the indexes with which chosen finds pods, and formerHolders the EgressIPs
// that had an address.
func (c *Controller) addIndexes() error {
	return errors.Join(
		kube.AddIndex(c.deps.Namespaces.Informer(), byLabel, func(n *corev1.Namespace) []string {
			return labelKeys("", n.Labels)
		}),
		kube.AddIndex(c.deps.Pods.Informer(), byLabel, func(p *corev1.Pod) []string {
			if !kube.NeedsNetwork(p) {
				return nil // needs no pod network; if it has rows, they enqueue its key
			}
			return labelKeys(p.Namespace, p.Labels)
		}),
		kube.AddIndex(c.deps.EgressIPs.Informer(), byHeld, func(e *v1.EgressIP) []string {
			var held []string
			for a := range egressip.Decode(e).Holders {
				held = append(held, a.String())
			}
			return held
		}),
		kube.AddIndex(c.deps.Nodes.Informer(), byRecorded, func(n *corev1.Node) []string {
			recorded, err := kube.EgressIPAddresses(n)
			if err != nil {
				klog.V(4).InfoS("Node has an annotation that cannot be read", "node", n.Name, "err", err)
			}
			texts := make([]string, 0, len(recorded))
			for _, a := range recorded {
				texts = append(texts, a.String())
			}
			return texts
		}),
	)
}

func labelKeys(namespace string, has map[string]string) []string {
	keys := make([]string, 0, len(has))
	for name, value := range has {
		keys = append(keys, labelKey(namespace, egressip.Label{Key: name, Value: value}))
	}
	return keys
}

// labelKey returns an index key. The parts before the value contain no "=".
func labelKey(namespace string, l egressip.Label) string {
	return namespace + "=" + l.Key + "=" + l.Value
}

// updateSelection updates the selection with the current selectors of an EgressIP. It is called
// for every event about an EgressIP, before the affected pods are enqueued.
func (c *Controller) updateSelection(name string) {
	c.selecting.Lock()
	defer c.selecting.Unlock()
	if e, err := c.deps.EgressIPs.Lister().Get(name); err == nil {
		c.selection.Set(e)
	} else {
		c.selection.Delete(name) // a lister returns no other error
	}
}

// choose returns the EgressIPs that select a pod, the one that has it first.
func (c *Controller) choose(p *corev1.Pod) []string {
	if c.deps.EgressIPs.Informer().HasSynced() {
		c.first.Do(func() { // some events may not have arrived yet
			for _, name := range c.deps.EgressIPs.Informer().GetIndexer().ListKeys() {
				c.updateSelection(name)
			}
		})
	}
	ns, err := c.deps.Namespaces.Lister().Get(p.Namespace)
	if err != nil {
		return nil // the namespace's event enqueues its pods again
	}
	return c.selection.Matching(ns.Labels, p.Labels)
}

// chosen returns the keys of the pods that a selector selects.
func (c *Controller) chosen(s egressip.Selector) []string {
	var keys []string
	for _, ns := range c.namespaces(s) {
		for _, key := range c.candidates(s, ns.Name) {
			obj, ok, err := c.deps.Pods.Informer().GetIndexer().GetByKey(key)
			if p, is := obj.(*corev1.Pod); ok && is && err == nil && s.Selects(ns.Labels, p.Labels) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// namespaces returns the namespaces whose pods a selector may select.
func (c *Controller) namespaces(s egressip.Selector) []*corev1.Namespace {
	indexer := c.deps.Namespaces.Informer().GetIndexer()
	names, ok := fewest(indexer, "", s.NamespaceLabels())
	if !ok {
		names = indexer.ListKeys()
	}
	var found []*corev1.Namespace
	for _, name := range names {
		if ns, err := c.deps.Namespaces.Lister().Get(name); err == nil && s.SelectsNamespace(ns.Labels) {
			found = append(found, ns)
		}
	}
	return found
}

// candidates returns the keys of the pods of a namespace that a selector may select.
func (c *Controller) candidates(s egressip.Selector, namespace string) []string {
	indexer := c.deps.Pods.Informer().GetIndexer()
	if keys, ok := fewest(indexer, namespace, s.PodLabels()); ok {
		return keys
	}
	keys, err := indexer.IndexKeys(cache.NamespaceIndex, namespace)
	if err != nil {
		klog.ErrorS(err, "Cannot list the pods of a namespace", "namespace", namespace) // cannot happen: the informer factory creates this index
	}
	return keys
}

// fewest returns the keys of the objects that have the rarest of the label sets that a selector
// requires by value. ok is false if it requires none.
func fewest(indexer cache.Indexer, namespace string, all []egressip.AnyLabel) (fewest []string, ok bool) {
	for _, one := range all {
		var keys []string
		for _, l := range one {
			found, err := indexer.IndexKeys(byLabel, labelKey(namespace, l))
			if err != nil {
				return nil, false // cannot happen: we created this index
			}
			keys = append(keys, found...)
		}
		if !ok || len(keys) < len(fewest) {
			fewest, ok = keys, true
		}
	}
	return fewest, ok
}
