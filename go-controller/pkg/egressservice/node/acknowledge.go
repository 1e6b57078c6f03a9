package node

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// fieldManager is the owner of the nodes' part of a status.
const fieldManager = "ovnkube-node"

// watchSelf enqueues the EgressServices that every node serves when this node rejoins
// the cluster: until then it could not report anything.
func (c *Controller) watchSelf() error {
	if c.deps.Nodes == nil {
		return nil
	}
	return c.queue.Watch(c.deps.Nodes.Informer(), func(old, new any) []string {
		if n, ok := new.(*corev1.Node); ok && old == nil && n.Name == c.deps.Node {
			return c.reader.Keys()
		}
		return nil
	})
}

// present reports whether this node is in the cluster.
func (c *Controller) present() bool {
	if c.deps.Nodes == nil {
		return true
	}
	_, err := c.deps.Nodes.Lister().Get(c.deps.Node)
	return !apierrors.IsNotFound(err)
}

// acknowledge reports in the status what this node has programmed, if it is the
// host and the status does not show it yet. The API server rejects the status entry of a node
// that is no longer the host.
func (c *Controller) acknowledge(ctx context.Context, eg *v1.EgressService, s egressservice.Service, problem string) error {
	if s.Host == v1.HostAll && problem != "" && !c.present() {
		return nil // the master removes the status entries of unknown nodes
	}
	patch, err := AcknowledgementPatch(eg, s, c.deps.Node, problem)
	if patch == nil || err != nil {
		return err
	}
	_, err = c.deps.Egress.EgressServiceV1().EgressServices(eg.Namespace).Patch(
		ctx, eg.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		klog.V(4).InfoS("Acknowledgement came too late", "egressService", s.Key, "err", err)
		return nil // the event of the conflicting change is on the way
	}
	if err != nil {
		return fmt.Errorf("acknowledge EgressService %s: %w", s.Key, err)
	}
	klog.V(2).InfoS("Acknowledged", "egressService", s.Key, "problem", problem)
	return nil
}

// AcknowledgementPatch returns the JSON patch of the status with which a node reports what it has
// programmed, or nil if there is nothing to report.
func AcknowledgementPatch(eg *v1.EgressService, s egressservice.Service, node, problem string) ([]byte, error) {
	const path = "/status/programmed"
	ops := kube.JSONPatch{}.Test("/metadata/uid", eg.UID).Test("/status/host", s.Host)
	switch {
	case s.Refused != (egressservice.Refusal{}):
		return nil, nil
	case s.Host == node:
		word := egressservice.Acknowledgement(s, s.Host)
		word.Problem = problem
		if egressservice.SameAcknowledgement(s.Ack, word) {
			return nil, nil
		}
		ops = ops.Add(path, word)
	case s.Host == v1.HostAll && problem != "":
		// One node's status entry is enough to show that there is a problem, but its own
		// problem may change.
		word := v1.ProgrammedStatus{Host: node, Problem: problem}
		if egressservice.SameAcknowledgement(s.Ack, word) || s.Ack.Problem != "" && s.Ack.Host != node {
			return nil, nil
		}
		ops = ops.Add(path, word)
	case s.Host == v1.HostAll && s.Ack.Host == node:
		ops = ops.Remove(path)
	default:
		return nil, nil
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode acknowledgement of EgressService %s: %w", s.Key, err)
	}
	return patch, nil
}
