package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
		if o != nil && n != nil && o.Status.Host == n.Status.Host {
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
		if o != nil && n != nil && maps.Equal(o.Labels, n.Labels) {
			return nil
		}
		return []string{all}
	})
}

// label makes the labels of all nodes follow the statuses. A label that could
// not be taken off one node is not put on another.
func (c *Controller) label(ctx context.Context, _ string) error {
	objs, err := c.reader.Objects()
	if err != nil {
		return err
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	want := egressservice.Labels(objs)

	var errs []error
	stuck := map[string]bool{}
	for _, n := range nodes {
		remove := map[string]*string{}
		for key := range n.Labels {
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

// patchLabels changes labels of a node. A node that is gone has none.
func (c *Controller) patchLabels(ctx context.Context, n *corev1.Node, change map[string]*string) error {
	if len(change) == 0 {
		return nil
	}
	err := kube.PatchNode(ctx, c.deps.Kube, n, kube.Metadata{Labels: change})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	klog.V(4).InfoS("Labels of node are as wanted", "node", n.Name, "labels", len(change))
	return nil
}
