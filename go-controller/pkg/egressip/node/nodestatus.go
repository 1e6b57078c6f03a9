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
	// fieldManager is what the nodes' part of a status belongs to.
	fieldManager = "ovnkube-node"
	// attempts is how often a status entry is tried when others write the same status.
	attempts = 5
)

// nodeStatus returns what there is to say. Who has nothing says nothing.
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

// patchNodeStatus makes the status have this node's status entry; nil for none. Where the status has
// changed since it was read, it is read again; where that changes what this node
// is given, the news of it is on its way and the status entry would be wrong.
func (c *Controller) patchNodeStatus(ctx context.Context, e *v1.EgressIP, status *v1.ProgrammedStatus) error {
	client := c.deps.Client.EgressIPV1().EgressIPs()
	uid, given := e.UID, egressip.ItemsOf(e.Status, c.deps.Node)
	for attempt := 1; ; attempt++ {
		patch, err := NodeStatusPatch(e, c.deps.Node, status)
		if patch == nil || err != nil {
			return err
		}
		_, err = client.Patch(ctx, e.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
		if err == nil {
			klog.V(2).InfoS("Updated the status entry of this node", "egressIP", e.Name, "word", status)
			return nil
		}
		if attempt == attempts || ctx.Err() != nil {
			return fmt.Errorf("say what this node holds of EgressIP %s: %w", e.Name, err)
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
	}
}

// NodeStatusPatch returns the JSON patch that makes the status of e have a node's status entry;
// nil where it has. The server refuses it where e is another object by now, where
// the items differ from those that a status entry was given for, and where the place of
// the status entry in the list is another's.
func NodeStatusPatch(e *v1.EgressIP, node string, status *v1.ProgrammedStatus) ([]byte, error) {
	have, at := egressip.NodeStatusOf(e.Status, node)
	ops := kube.JSONPatch{}.Test("/metadata/uid", e.UID)
	place := fmt.Sprintf("/status/programmed/%d", at)
	switch {
	case status == nil && at < 0, status != nil && at >= 0 && egressip.SameNodeStatus(have, *status):
		return nil, nil
	case status == nil:
		if len(e.Status.Programmed) == 1 { // no list rather than an empty one
			place = "/status/programmed"
			ops = ops.Test(place, e.Status.Programmed)
		} else {
			ops = ops.Test(place+"/node", node)
		}
		ops = ops.Remove(place)
	default:
		ops = ops.Test("/status/items", e.Status.Items)
		switch {
		case at >= 0:
			ops = ops.Test(place+"/node", node).Replace(place, status)
		case e.Status.Programmed != nil:
			// The list as it was read has no status entry of this node; as it is, it may.
			ops = ops.Test("/status/programmed", e.Status.Programmed).Add("/status/programmed/-", status)
		default:
			ops = ops.Test("/status/programmed", nil).Add("/status/programmed", []any{status})
		}
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode the word on EgressIP %s: %w", e.Name, err)
	}
	return patch, nil
}

// maxStatusWait bounds how long a node that comes back waits: it answers probes meanwhile,
// so that a master which is more patient does not take it for dead any more. Nothing on
// the node starts before that.
const maxStatusWait = 10 * time.Second

// waitForStatusTimeout keeps a node that comes back from believing its own status entries before it is
// certain to have heard that they hold no more: it may have been silent for so long
// that the master is about to give its addresses to others. Until then a bridge
// that has lost its flows lets OVN answer for nothing, and one that has them goes
// on as it was.
func (c *Controller) waitForStatusTimeout(ctx context.Context) {
	if c.deps.Silence == 0 || !queue.Informed(ctx, "egressip-node", c.deps.EgressIPs.Informer().HasSynced) {
		return
	}
	if !slices.ContainsFunc(c.objects(), func(e *v1.EgressIP) bool { return len(c.restoreHeld(e).held) > 0 }) {
		return
	}
	// A probe, and then the news, may take the time of another half.
	wait := min(c.deps.Silence+c.deps.Silence/2, maxStatusWait)
	klog.InfoS("Waiting until it is certain which egress addresses this node still has", "for", wait)
	defer waits.Begin(waits.Wait{Part: "egressip-node", For: "certainty about which egress addresses this node still has", Limit: wait}).End()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}
