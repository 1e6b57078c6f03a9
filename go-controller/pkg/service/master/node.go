package master

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/panics"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// clusterKey is the key of the rows that exist once.
const clusterKey = ""

// nodeKeys filters for changes that rows depend on: a node's status is updated every few
// seconds.
func nodeKeys(old, new any) []string {
	a, _ := old.(*corev1.Node)
	b, _ := new.(*corev1.Node)
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		return []string{b.Name}
	case b == nil:
		return []string{a.Name}
	}
	for _, name := range []string{
		kube.AnnotationNodeSubnets, kube.AnnotationChassisID, kube.AnnotationL3Gateway, kube.AnnotationGatewayLRPIfAddr,
	} {
		if a.Annotations[name] != b.Annotations[name] {
			return []string{b.Name}
		}
	}
	return nil
}

// reconcileNode writes the template variables of a node, or the rows of the
// cluster.
func (c *Controller) reconcileNode(ctx context.Context, name string) error {
	if name == clusterKey {
		return c.applyNode(ctx, name, service.ClusterRows(c.deps.Config))
	}
	n, err := c.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		c.updateNode(name, nil)
		return c.applyNode(ctx, name, nil)
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", name, err)
	}
	node := decodeNode(n)
	// Update the facts even if this fails: a Service planned without the node would lose
	// its rows there.
	err = c.applyNode(ctx, name, service.NodeRows(node, c.deps.Config))
	facts := service.FactsOf(node)
	c.updateNode(name, &facts)
	return err
}

// updateNodes stores the facts of all nodes before any Service is planned: one planned with
// only some of the nodes would lose rows. It is a seed without keys.
func (c *Controller) updateNodes() []string {
	nodes, _ := c.nodes.List(labels.Everything()) // reads memory and does not fail
	for _, n := range nodes {
		// A failure is reported again by the node's key.
		_ = panics.Catch(service.FeatureNodes, func() error {
			facts := service.FactsOf(decodeNode(n))
			c.updateNode(n.Name, &facts)
			return nil
		})
	}
	return nil
}

// decodeNode decodes a node. Invalid annotations are ignored; their owners will repair
// them.
func decodeNode(n *corev1.Node) topology.Node {
	node, err := kube.Node(n)
	if err != nil {
		klog.V(4).InfoS("Node has an annotation that cannot be read", "node", n.Name, "reason", err.Error())
	}
	return node
}

func (c *Controller) applyNode(ctx context.Context, name string, rows []nb.Row) error {
	stats, err := c.deps.Writer.Apply(ctx, service.NodeOwner(name), rows)
	if err != nil {
		return fmt.Errorf("apply template variables of node %s: %w", name, err)
	}
	if !stats.Zero() {
		klog.V(2).InfoS("Wrote what services need of a node", "node", name,
			"inserted", stats.Inserted, "updated", stats.Updated, "deleted", stats.Deleted)
	}
	return nil
}
