package master

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// grace is how long pods may wait for their policies before the condition reports
// it: most take a few milliseconds, and each change of the condition is a write.
const grace = time.Second

// progressGrace replaces grace until all pods have been attempted once, and for the condition of an
// EgressIP that is on its way: each node that acknowledges, and each pod, would be one more write. What
// somebody has to look at is reported at once.
const progressGrace = 30 * time.Second

// fieldManager is the owner of the master's part of a status.
const fieldManager = "ovnkube-master"

func (c *Controller) watchStatuses() error {
	c.statuses.Seed(func() []string { return c.deps.EgressIPs.Informer().GetIndexer().ListKeys() })
	return c.statuses.Watch(c.deps.EgressIPs.Informer(), func(old, new any) []string {
		if n, ok := new.(*v1.EgressIP); ok {
			return []string{n.Name}
		}
		o, _ := old.(*v1.EgressIP)
		return []string{o.Name}
	})
}

// dead reports whether a node cannot remove its status entry itself: it is gone, or
// does not answer.
func (c *Controller) dead(node string) bool {
	n, err := c.deps.Nodes.Lister().Get(node)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	if c.deps.AssumeReachable {
		return !c.candidate(n).Ready
	}
	return c.deps.Health.Reach(node) == place.Dead
}

// nodeDown reports whether the status entry of a node must be removed: placement found the node dead, or gone.
func (c *Controller) nodeDown(node string) bool {
	if reachable, seen := c.decisions.reach(node); seen {
		return !reachable
	}
	_, err := c.deps.Nodes.Lister().Get(node)
	return apierrors.IsNotFound(err)
}

// report writes the status of one EgressIP and its Events.
func (c *Controller) report(ctx context.Context, key string) error {
	e, err := c.deps.EgressIPs.Lister().Get(key)
	if apierrors.IsNotFound(err) {
		c.auditDeleted(key)
		c.forget(key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get EgressIP %s: %w", key, err)
	}
	c.auditFound(e)
	d, ok := c.decisions.about(e)
	if !ok {
		return nil // placement will enqueue it
	}
	last := c.written.last(e)
	known := last.Status
	want := *known.DeepCopy()
	want.Programmed = slices.DeleteFunc(want.Programmed, func(w v1.ProgrammedStatus) bool { return c.nodeDown(w.Node) })
	want.Items = d.Assign(want, func(egressip.Placement) bool { return c.podStates.translated(key) })
	want.Programmed = egressip.DropAwaiting(want.Programmed, want.Items)
	former, err := c.formerHolders(ctx, key, d, known)
	if err != nil {
		return err
	}
	want.Programmed = egressip.KeepFormerHolders(want.Programmed, former)
	c.checkTimeouts(key, d, want, e.Status.Items)
	is := egressip.Conditions(d, want, c.podReport(key))
	for _, condition := range is {
		condition.ObservedGeneration = e.Generation
		if condition.Type == v1.ConditionProgrammed && c.transient(key, known, want, condition) {
			continue
		}
		meta.SetStatusCondition(&want.Conditions, condition)
	}
	if accepted, err := c.patch(ctx, e, last, want); err != nil || !accepted {
		return err
	}
	c.auditAssignments(e, want, d)
	c.decisions.forgetFormer(former)
	c.measureFailover(key, d, is)
	before := egressip.Decode(&v1.EgressIP{Status: known}).Items
	c.deps.Metrics.Moved(conditions.EgressIP, d.Moves(before)...)
	for _, n := range egressip.Notices(d, before, known.Conditions, want.Conditions) {
		kind := corev1.EventTypeNormal
		if n.Warning {
			kind = corev1.EventTypeWarning
		}
		klog.V(2).InfoS("EgressIP changed", "egressIP", key, "reason", n.Reason, "message", n.Message)
		c.deps.Recorder.Event(e, kind, n.Reason, n.Message)
	}
	return nil
}

// podReport returns the state of the pods of an EgressIP.
func (c *Controller) podReport(key string) egressip.Report {
	return egressip.Report{Conflicts: c.members.Conflicts(key), Waiting: c.podStates.unsettled(key),
		Unresponsive: c.ackTimeouts.TimedOut, Stuck: c.stuckChassis.TimedOut}
}

// transient reports whether the condition would only say how far an EgressIP is on its way, or that its
// pods wait for their policies for a moment. If so, it enqueues the key to check again later.
func (c *Controller) transient(key string, known, want v1.EgressIPStatus, next metav1.Condition) bool {
	left := c.tolerance(known, want, next)
	if left > 0 {
		left -= time.Since(c.written.waitingSince(key))
	}
	if left <= 0 {
		c.written.waitsNoMore(key)
		return false
	}
	c.statuses.EnqueueAfter(left, key)
	return true
}

// tolerance returns how long the known status may lack the next condition.
func (c *Controller) tolerance(known, want v1.EgressIPStatus, next metav1.Condition) time.Duration {
	is := meta.FindStatusCondition(known.Conditions, v1.ConditionProgrammed)
	switch {
	case is == nil || !underway(next):
		return 0
	case is.Status == metav1.ConditionTrue && next.Reason == egressip.ReasonWaitingForPolicies:
		select {
		case <-c.pods.Attempted():
			return grace
		default:
			return progressGrace
		}
	case underway(*is) && is.Message != next.Message && is.ObservedGeneration == next.ObservedGeneration &&
		equality.Semantic.DeepEqual(known.Items, want.Items) && equality.Semantic.DeepEqual(known.Programmed, want.Programmed):
		return progressGrace // nothing else is to be written
	}
	return 0
}

// underway reports whether a condition says that nodes and pods merely take their time.
func underway(c metav1.Condition) bool {
	return c.Reason == egressip.ReasonWaitingForNode || c.Reason == egressip.ReasonWaitingForPolicies
}

func (c *Controller) forget(key string) {
	c.ackTimeouts.SetPending(key, nil)
	c.deps.Metrics.Decided(conditions.EgressIP, key)
	c.written.forget(key)
	c.podStates.forget(key)
}

// patch changes the status of an EgressIP from the last known one to want in one request, and reports whether that is now the
// status: not if the EgressIP has been deleted. shown is the object as the lister shows it.
func (c *Controller) patch(ctx context.Context, shown, last *v1.EgressIP, want v1.EgressIPStatus) (accepted bool, err error) {
	kind, body := difference(last, want)
	if body == nil {
		return true, nil
	}
	result, err := c.send(ctx, last.Name, kind, body)
	if kind == types.JSONPatchType && apierrors.IsInvalid(err) {
		// Items that this program has not written may not be what a test compares them with. If nothing has changed they can be replaced.
		result, err = c.send(ctx, last.Name, types.MergePatchType, unlessChanged(last, want))
	}
	if apierrors.IsNotFound(err) {
		return false, nil // its deletion event is on the way
	}
	if err != nil {
		return false, fmt.Errorf("patch status of EgressIP %s: %w", last.Name, err)
	}
	c.written.patched.Record(last.Name, shown, result)
	return true, nil
}

func (c *Controller) send(ctx context.Context, name string, kind types.PatchType, body any) (*v1.EgressIP, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return c.deps.Egress.EgressIPV1().EgressIPs().Patch(ctx, name, kind, data, metav1.PatchOptions{FieldManager: fieldManager}, "status")
}

// difference returns the patch from the status of e to want, or nil if they are equal. It requires that the items are those of e
// if they change: a request that was already under way when this master was suspended must not undo what another one has assigned
// meanwhile. Status
// entries belong to the nodes: an entry to be removed is addressed by its index, which the server verifies.
func difference(e *v1.EgressIP, want v1.EgressIPStatus) (types.PatchType, any) {
	known, change := e.Status, changed(e.Status, want)
	_, items := change["items"]
	edited := slices.ContainsFunc(want.Programmed, func(w v1.ProgrammedStatus) bool {
		was, _ := egressip.NodeStatusOf(known, w.Node)
		return !egressip.SameNodeStatus(was, w)
	})
	switch {
	case edited, items && len(known.Items) == 0: // a test cannot tell whether a list is empty or missing
		return types.MergePatchType, unlessChanged(e, want)
	case !items && len(known.Programmed) == len(want.Programmed):
		if len(change) == 0 {
			return "", nil
		}
		return types.MergePatchType, map[string]any{"metadata": map[string]any{"uid": e.UID}, "status": change}
	}
	ops := kube.JSONPatch{}.Test("/metadata/uid", e.UID)
	if items {
		ops = ops.Test("/status/items", known.Items)
	}
	for i := len(known.Programmed) - 1; i >= 0; i-- {
		nodeStatus := known.Programmed[i]
		if slices.ContainsFunc(want.Programmed, func(w v1.ProgrammedStatus) bool { return w.Node == nodeStatus.Node }) {
			continue
		}
		path := fmt.Sprintf("/status/programmed/%d", i)
		ops = ops.Test(path+"/node", nodeStatus.Node).Remove(path)
	}
	for _, field := range []string{"items", "conditions"} {
		if value, ok := change[field]; ok {
			ops = ops.Add("/status/"+field, value)
		}
	}
	return types.JSONPatchType, ops
}

// unlessChanged returns the merge patch from the status of e to want that requires that nobody has written meanwhile.
func unlessChanged(e *v1.EgressIP, want v1.EgressIPStatus) any {
	change := changed(e.Status, want)
	if !equality.Semantic.DeepEqual(e.Status.Programmed, want.Programmed) {
		change["programmed"] = want.Programmed
	}
	return map[string]any{"metadata": map[string]any{"uid": e.UID, "resourceVersion": e.ResourceVersion}, "status": change}
}

// changed returns the items and conditions of want that differ from the known ones, by field.
func changed(known, want v1.EgressIPStatus) map[string]any {
	change := map[string]any{}
	if !equality.Semantic.DeepEqual(known.Items, want.Items) {
		change["items"] = want.Items
		if want.Items == nil {
			change["items"] = []v1.EgressIPStatusItem{}
		}
	}
	if !equality.Semantic.DeepEqual(known.Conditions, want.Conditions) {
		change["conditions"] = want.Conditions
	}
	return change
}
