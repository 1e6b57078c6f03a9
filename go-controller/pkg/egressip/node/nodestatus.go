package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/queue"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

const (
	// fieldManager is the owner of the nodes' part of a status.
	fieldManager = "ovnkube-node"
	// attempts is how often the patch of a status entry is tried if others write the same status.
	attempts = 5
)

// nodeStatus returns this node's status entry, or nil if there is nothing to report.
func (c *Controller) nodeStatus(s state, on linkState) *v1.ProgrammedStatus {
	status := v1.ProgrammedStatus{Node: c.deps.Node, Digest: on.digest, Problem: on.problem}
	for a, held := range s.held {
		if held {
			status.EgressIPs = append(status.EgressIPs, a.String())
		}
	}
	slices.SortFunc(status.EgressIPs, func(a, b string) int {
		return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b))
	})
	for _, a := range on.awaiting {
		status.Awaiting = append(status.Awaiting, a.String())
	}
	if len(status.EgressIPs)+len(status.Awaiting) == 0 && status.Digest == "" && status.Problem == "" {
		return nil
	}
	return &status
}

// patchNodeStatus sets this node's status entry; nil removes it. If the status has
// changed since it was read, it is read again. If this changes the assignment of this node,
// the entry would be wrong. If it changes the addresses in the entry, nobody has checked whether this node has
// really released those that would be removed. In both cases nothing is written, since the event of that change is on its way.
func (c *Controller) patchNodeStatus(ctx context.Context, e *v1.EgressIP, status *v1.ProgrammedStatus) error {
	client := c.deps.Client.EgressIPV1().EgressIPs()
	uid, given := e.UID, egressip.ItemsOf(e.Status, c.deps.Node)
	checked, _ := egressip.NodeStatusOf(e.Status, c.deps.Node)
	for attempt := 1; ; attempt++ {
		patch, err := NodeStatusPatch(e, c.deps.Node, status)
		if patch == nil || err != nil {
			return err
		}
		_, err = client.Patch(ctx, e.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
		if err == nil {
			klog.V(2).InfoS("Updated the status entry of this node", "egressIP", e.Name, "entry", status)
			return nil
		}
		if attempt == attempts || ctx.Err() != nil {
			return fmt.Errorf("report what this node holds of EgressIP %s: %w", e.Name, err)
		}
		e, err = client.Get(ctx, e.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read EgressIP: %w", err)
		}
		if e.UID != uid || status != nil && !slices.Equal(given, egressip.ItemsOf(e.Status, c.deps.Node)) {
			return nil
		}
		if now, _ := egressip.NodeStatusOf(e.Status, c.deps.Node); !slices.Equal(now.EgressIPs, checked.EgressIPs) {
			return nil
		}
	}
}

// NodeStatusPatch returns the JSON patch that sets a node's status entry in the status of e, or
// nil if it is already set. The API server rejects the patch if e has been replaced by another object,
// if the items differ from those that the entry was computed for, if the list index of
// the entry belongs to another node, or if the entry lists other addresses than in e.
func NodeStatusPatch(e *v1.EgressIP, node string, status *v1.ProgrammedStatus) ([]byte, error) {
	have, at := egressip.NodeStatusOf(e.Status, node)
	ops := kube.JSONPatch{}.Test("/metadata/uid", e.UID)
	place := fmt.Sprintf("/status/programmed/%d", at)
	switch {
	case status == nil && at < 0, status != nil && at >= 0 && egressip.SameNodeStatus(have, *status):
		return nil, nil
	case status == nil:
		if len(e.Status.Programmed) == 1 { // remove the list rather than leave it empty
			place = "/status/programmed"
			ops = ops.Test(place, e.Status.Programmed)
		} else {
			ops = ops.Test(place+"/node", node).Test(place+"/egressIPs", have.EgressIPs)
		}
		ops = ops.Remove(place)
	default:
		ops = ops.Test("/status/items", e.Status.Items)
		switch {
		case at >= 0:
			ops = ops.Test(place+"/node", node).Test(place+"/egressIPs", have.EgressIPs).Replace(place, status)
		case e.Status.Programmed != nil:
			// The list that was read has no entry of this node; the current list may have one.
			ops = ops.Test("/status/programmed", e.Status.Programmed).Add("/status/programmed/-", status)
		default:
			ops = ops.Test("/status/programmed", nil).Add("/status/programmed", []any{status})
		}
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode the status entry of EgressIP %s: %w", e.Name, err)
	}
	return patch, nil
}

// maxStatusWait bounds the wait of a returning node: it answers probes meanwhile,
// so that a master with a longer timeout no longer considers it dead. Nothing on
// the node starts before that.
const maxStatusWait = 10 * time.Second

// waitForStatusTimeout keeps a returning node from trusting its own status entries before it is
// certain to have received any changes of its assignments: it may have been silent for so long
// that the master is about to give its addresses to others. Until then a bridge
// that has lost its flows lets OVN answer for no address, and a bridge that has them continues
// as before.
func (c *Controller) waitForStatusTimeout(ctx context.Context) {
	if c.deps.ReachabilityTimeout == 0 || !queue.Informed(ctx, "egressip-node", c.deps.EgressIPs.Informer().HasSynced) {
		return
	}
	if !slices.ContainsFunc(c.objects(), func(e *v1.EgressIP) bool { return len(c.restoreHeld(e).held) > 0 }) {
		return
	}
	// A probe, and then the event, may take another half of that time.
	wait := min(c.deps.ReachabilityTimeout+c.deps.ReachabilityTimeout/2, maxStatusWait)
	klog.InfoS("Waiting until it is certain which egress addresses this node still has", "for", wait)
	defer waits.Begin(waits.Wait{Part: "egressip-node", For: "certainty about which egress addresses this node still has", Limit: wait}).End()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}
