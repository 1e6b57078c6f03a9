package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

func (c *Controller) watchLabels() error {
	c.labels.Seed(func() []string { return []string{all} })
	err := c.labels.Watch(c.deps.Informers.EgressServices.Informer(), func(old, new any) []string {
		o, _ := old.(*v1.EgressService)
		n, _ := new.(*v1.EgressService)
		if o != nil && n != nil && o.Status.Host == n.Status.Host &&
			egressservice.Done(o.Status) == egressservice.Done(n.Status) {
			return nil
		}
		return []string{all}
	})
	if err != nil {
		return err
	}
	return c.labels.Watch(c.deps.Nodes.Informer(), func(old, new any) []string {
		o, _ := old.(*corev1.Node)
		n, _ := new.(*corev1.Node)
		if !c.unseen.Follows(old, new) && o != nil && n != nil && maps.Equal(o.Labels, n.Labels) {
			return nil
		}
		return []string{all}
	})
}

// assumed are the labels of a node after our patch, kept as long as the
// lister still shows the object that the patch was made from.
type assumed struct {
	from   *corev1.Node
	labels map[string]string
}

// current returns a node with its last known labels.
func (c *Controller) current(n *corev1.Node) *corev1.Node {
	a, ok := c.assumed[n.Name]
	if !ok || a.from != n {
		delete(c.assumed, n.Name)
		return n
	}
	known := *n
	known.Labels = a.labels
	return &known
}

// label makes the labels of all nodes follow the statuses. A label that could
// not be removed from one node is not added to another.
func (c *Controller) label(ctx context.Context, _ string) error {
	objs, err := c.reader.Objects()
	if err != nil {
		return err
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	want := egressservice.Labels(objs, c.labelsNow(nodes))
	maps.DeleteFunc(c.assumed, func(name string, _ assumed) bool {
		return !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })
	})

	var errs []error
	stuck := map[string]bool{}
	for _, n := range nodes {
		remove := map[string]*string{}
		for key := range c.current(n).Labels {
			if name, ours := strings.CutPrefix(key, kube.LabelEgressServicePrefix); ours && !want[n.Name][name] {
				remove[key] = nil
			}
		}
		if err := c.patchLabels(ctx, n, remove); err != nil {
			errs = append(errs, err)
			for key := range remove {
				stuck[key] = true
			}
		}
	}
	for _, n := range nodes {
		add := map[string]*string{}
		for name := range want[n.Name] {
			if key := kube.LabelEgressServicePrefix + name; !stuck[key] {
				add[key] = kube.Value("")
			}
		}
		if err := c.patchLabels(ctx, n, add); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// labelsNow returns our labels, without their prefix, by node.
func (c *Controller) labelsNow(nodes []*corev1.Node) map[string]map[string]bool {
	now := map[string]map[string]bool{}
	for _, n := range nodes {
		for key := range c.current(n).Labels {
			name, ours := strings.CutPrefix(key, kube.LabelEgressServicePrefix)
			if !ours {
				continue
			}
			if now[n.Name] == nil {
				now[n.Name] = map[string]bool{}
			}
			now[n.Name][name] = true
		}
	}
	return now
}

// patchLabels changes labels of a node. A deleted node is ignored.
func (c *Controller) patchLabels(ctx context.Context, n *corev1.Node, change map[string]*string) error {
	if len(change) == 0 {
		return nil
	}
	known := c.current(n)
	changed := maps.Clone(known.Labels)
	if changed == nil {
		changed = map[string]string{}
	}
	for key, value := range change {
		if value == nil {
			delete(changed, key)
		} else {
			changed[key] = *value
		}
	}
	if maps.Equal(changed, known.Labels) {
		return nil
	}
	err := kube.PatchNode(ctx, c.deps.Kube, known, kube.Metadata{Labels: change, Unseen: &c.unseen})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.assumed[n.Name] = assumed{from: n, labels: changed}
	klog.V(2).InfoS("Labels of node changed", "node", n.Name, "labels", slices.Sorted(maps.Keys(change)))
	return nil
}
