package master

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// The reasons of Events, in addition to those of a Refusal.
const (
	eventAssigned        = "HostAssigned"
	eventMoved           = "HostChanged"
	eventConflict        = "Conflict"
	eventNetwork         = "NetworkNotFound"
	eventNotAcknowledged = "NotAcknowledged"
)

// fieldManager is the owner of the master's part of a status.
const fieldManager = "ovnkube-master"

// known returns the last known status: that of eg, or the result of our patch to it.
func (c *Controller) known(eg *v1.EgressService) v1.EgressServiceStatus { return c.last(eg).Status }

// last returns the last known state of an EgressService: what it is, or the result of our patch to it.
func (c *Controller) last(eg *v1.EgressService) *v1.EgressService {
	return c.patched.Known(eg.Namespace+"/"+eg.Name, eg)
}

// read decodes an EgressService, with the last known acknowledgement: one that this master has
// revoked must not count when the host is assigned again.
func (c *Controller) read(eg *v1.EgressService) (s egressservice.Service, others []string, err error) {
	if s, others, err = c.reader.Decode(eg); err != nil {
		return s, nil, err
	}
	return c.acknowledged(eg, s), others, nil
}

// acknowledged returns s with the last known acknowledgement.
func (c *Controller) acknowledged(eg *v1.EgressService, s egressservice.Service) egressservice.Service {
	known := c.known(eg)
	s.Ack, s.Done = v1.ProgrammedStatus{}, egressservice.Done(known)
	if known.Programmed != nil {
		s.Ack = *known.Programmed
	}
	return s
}

// setStatus writes the decision and its progress to the status, in one patch, and returns the
// resulting host.
func (c *Controller) setStatus(ctx context.Context, eg *v1.EgressService, s egressservice.Service, d egressservice.Decision) (string, error) {
	last := c.last(eg)
	known := last.Status
	want := *known.DeepCopy()
	want.Host = egressservice.Status(s, d)
	// A previous acknowledgement must not count when the host is assigned again: the host removes
	// its rules when the status no longer names it. An entry from when every node served is not from a host.
	// The same applies to the status entry of a deleted node.
	shared := func(host string) bool { return host == "" || host == v1.HostAll }
	revoke := want.Programmed != nil && (want.Host != known.Host && (shared(want.Host) || shared(known.Host)) ||
		want.Host == v1.HostAll && c.gone(want.Programmed.Host))
	if revoke {
		want.Programmed, s.Ack = nil, v1.ProgrammedStatus{}
	}
	conditions := egressservice.Conditions(s, d)
	for _, condition := range conditions {
		condition.ObservedGeneration = eg.Generation
		meta.SetStatusCondition(&want.Conditions, condition)
	}
	if !slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == v1.ConditionIngressRefused }) {
		meta.RemoveStatusCondition(&want.Conditions, v1.ConditionIngressRefused)
	}
	kind, body := difference(last, want)
	if body == nil {
		return want.Host, nil
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("encode status of EgressService %s: %w", s.Key, err)
	}
	result, err := c.deps.Egress.EgressServiceV1().EgressServices(eg.Namespace).Patch(ctx, eg.Name, kind, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if apierrors.IsNotFound(err) {
		return known.Host, nil // its deletion event is on the way
	}
	if err != nil {
		return "", fmt.Errorf("patch status of EgressService %s: %w", s.Key, err)
	}
	c.patched.Record(s.Key, eg, result)
	if want.Host != known.Host {
		c.moved(eg, known.Host, want.Host, d.Left)
	}
	return want.Host, nil
}

// difference returns the patch from the status of eg to want, or nil if they are equal. It requires that the host is that of eg if
// it changes: a request that was already under way when this master was suspended must not undo what another one has decided meanwhile.
func difference(eg *v1.EgressService, want v1.EgressServiceStatus) (types.PatchType, any) {
	known := eg.Status
	switch {
	case want.Host == known.Host:
		return types.MergePatchType, merge(eg, want, false)
	case known.Host == "":
		return types.MergePatchType, merge(eg, want, true)
	}
	ops := kube.JSONPatch{}.Test("/metadata/uid", eg.UID).Test("/status/host", known.Host)
	if want.Host == "" {
		ops = ops.Remove("/status/host")
	} else {
		ops = ops.Replace("/status/host", want.Host)
	}
	if want.Programmed == nil && known.Programmed != nil {
		ops = ops.Remove("/status/programmed")
	}
	if !equality.Semantic.DeepEqual(want.Conditions, known.Conditions) {
		ops = ops.Add("/status/conditions", want.Conditions)
	}
	return types.JSONPatchType, ops
}

// merge returns the merge patch from the status of eg to want, or nil if they are equal. If unlessChanged, it requires that nobody
// has written meanwhile.
func merge(eg *v1.EgressService, want v1.EgressServiceStatus, unlessChanged bool) any {
	change, metadata := map[string]any{}, map[string]any{"uid": eg.UID}
	if want.Host != eg.Status.Host {
		change["host"] = hostOrNull(want.Host)
	}
	if want.Programmed == nil && eg.Status.Programmed != nil {
		change["programmed"] = nil
	}
	if !equality.Semantic.DeepEqual(want.Conditions, eg.Status.Conditions) {
		change["conditions"] = want.Conditions
	}
	if len(change) == 0 {
		return nil
	}
	if unlessChanged {
		metadata["resourceVersion"] = eg.ResourceVersion
	}
	return map[string]any{"metadata": metadata, "status": change}
}

// moved emits the Event about a change of host.
func (c *Controller) moved(eg *v1.EgressService, from, to, why string) {
	klog.V(2).InfoS("Host changed", "egressService", klog.KObj(eg), "from", from, "to", to, "why", why)
	switch {
	case to == "": // the refusal reports it
	case to == v1.HostAll:
		c.deps.Recorder.Event(eg, corev1.EventTypeNormal, eventAssigned, "Every node serves the egress traffic of its own pods")
	case from == "" || from == v1.HostAll:
		c.deps.Recorder.Eventf(eg, corev1.EventTypeNormal, eventAssigned, "Node %s serves the egress traffic", to)
	default:
		c.deps.Metrics.Moved(conditions.EgressService, why)
		if why != "" {
			from += ": " + why
		}
		c.deps.Recorder.Eventf(eg, corev1.EventTypeNormal, eventMoved, "Node %s serves the egress traffic instead of %s", to, from)
	}
}

// hostOrNull returns the value of host in a merge patch, in which null deletes.
func hostOrNull(host string) any {
	if host == "" {
		return nil
	}
	return host
}

// lastEvent is the last reported problem of an EgressService.
type lastEvent struct {
	refused                  egressservice.Refusal
	conflict, network        string
	ingress, notAcknowledged string
}

// emitEvents emits Events about why there is no host, which EgressService has the pods, and what the
// host could not do, each only when it changes.
func (c *Controller) emitEvents(eg *v1.EgressService, s egressservice.Service, d egressservice.Decision) {
	next := lastEvent{refused: egressservice.RejectionReason(s, d)}
	for _, condition := range egressservice.Conditions(s, d) {
		switch {
		case condition.Type == v1.ConditionConflict && condition.Status == metav1.ConditionTrue:
			next.conflict = condition.Message
		case condition.Reason == egressservice.ReasonNetworkNotFound:
			next.network = condition.Message
		case condition.Reason == egressservice.ReasonNotAcknowledged:
			next.notAcknowledged = condition.Message
		case condition.Type == v1.ConditionIngressRefused && condition.Status == metav1.ConditionTrue:
			next.ingress = condition.Message
		}
	}
	c.mu.Lock()
	last := c.lastEvents[s.Key]
	if next == (lastEvent{}) {
		delete(c.lastEvents, s.Key)
	} else {
		c.lastEvents[s.Key] = next
	}
	c.mu.Unlock()
	if next.refused != last.refused && next.refused != (egressservice.Refusal{}) {
		klog.V(2).InfoS("EgressService is not served", "egressService", s.Key, "reason", next.refused.Reason, "message", next.refused.Message)
		c.deps.Recorder.Event(eg, corev1.EventTypeWarning, string(next.refused.Reason), next.refused.Message)
	}
	if next.conflict != last.conflict && next.conflict != "" {
		c.deps.Recorder.Event(eg, corev1.EventTypeWarning, eventConflict, next.conflict)
	}
	if next.ingress != last.ingress && next.ingress != "" {
		c.deps.Recorder.Event(eg, corev1.EventTypeWarning, v1.ConditionIngressRefused, next.ingress)
	}
	if next.notAcknowledged != last.notAcknowledged && next.notAcknowledged != "" {
		c.deps.Recorder.Event(eg, corev1.EventTypeWarning, eventNotAcknowledged, next.notAcknowledged)
	}
	if next.network != last.network && next.network != "" {
		c.deps.Recorder.Event(eg, corev1.EventTypeWarning, eventNetwork, next.network)
	}
}
