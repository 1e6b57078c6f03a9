package master

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// updateGates records whether a pod with the pending annotation may start, and if so has the
// annotation removed.
func (c *Controller) updateGates(key string, st *podState, p *corev1.Pod, gate egressip.StartGate) {
	if c.podStates.setGate(st, p.UID, gate) {
		c.gates.Enqueue(key)
	}
}

// removePendingAnnotation removes the pending annotation from a pod that may start. If the lister does not show the
// annotation yet, its event enqueues the pod again. If it no longer shows it, the event that removed it
// has opened the gate: the response to our request may be lost, and others may remove the annotation, too.
func (c *Controller) removePendingAnnotation(ctx context.Context, key string) error {
	namespace, name, _ := strings.Cut(key, "/")
	p, err := c.deps.Pods.Lister().Pods(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get pod %s: %w", key, err)
	case !isPending(p):
		return nil
	}
	m := c.podStates.gate(key)
	if m.uid != p.UID || m.open || m.state == egressip.Blocked {
		return nil
	}
	err = kube.PatchPod(ctx, c.deps.Kube, p, kube.Metadata{Annotations: map[string]*string{kube.AnnotationEgressPending: nil}})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	c.opened(key, p)
	c.pods.Enqueue(key)
	return nil
}

// opened records that the pending annotation of a pod is gone: from now on the pod sends.
func (c *Controller) opened(key string, p *corev1.Pod) {
	gate, first := c.podStates.opened(key, p.UID)
	if !first {
		return
	}
	waited := time.Since(gate.since)
	c.deps.Metrics.PodStarted(waited, gate.state == egressip.Open)
	if gate.state == egressip.Open {
		klog.V(2).InfoS("Pod may send", "pod", key, "after", waited)
	} else {
		klog.InfoS("Pod starts before its policies are in force", "pod", key, "after", waited)
	}
}
