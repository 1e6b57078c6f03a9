package master

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// unreleased returns those of the remembered former holders that may still have their address, and forgets the others.
func (c *Controller) unreleased(ctx context.Context, former []egressip.Former) (left []egressip.Former, err error) {
	var released []egressip.Former
	for _, f := range former {
		has, err := c.hasReleased(ctx, f)
		if err != nil {
			return nil, err
		}
		if has {
			released = append(released, f)
		} else {
			left = append(left, f)
		}
	}
	c.decisions.forgetFormer(released)
	return left, nil
}

// hasReleased reports whether a node that held an address for a deleted EgressIP has certainly released it. On a secondary
// network, a node has an address on record from before it adds it until after it has removed it. Nothing comparable is
// known about addresses on the primary network.
func (c *Controller) hasReleased(ctx context.Context, f egressip.Former) (bool, error) {
	n, err := c.deps.Nodes.Lister().Get(f.Node)
	if apierrors.IsNotFound(err) {
		return false, nil // it is not waited for anyway
	}
	if err != nil {
		return false, fmt.Errorf("get node %s: %w", f.Node, err)
	}
	if c.mayHave(n, f) {
		return false, nil
	}
	// The informer may not show yet that the node has recorded the address.
	latest, err := c.deps.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.Node).String(),
	})
	if err != nil {
		return false, fmt.Errorf("read whether node %s has address %s on record: %w", f.Node, f.Addr, err)
	}
	return !slices.ContainsFunc(latest.Items, func(n corev1.Node) bool { return n.Name == f.Node && c.mayHave(&n, f) }), nil
}

// mayHave reports whether a node may have an address on a link, or on its primary network.
func (c *Controller) mayHave(n *corev1.Node, f egressip.Former) bool {
	recorded, err := kube.EgressIPAddresses(n)
	return err != nil || slices.Contains(recorded, f.Addr) || egressip.OnPrimary(c.candidate(n), f.Addr)
}
