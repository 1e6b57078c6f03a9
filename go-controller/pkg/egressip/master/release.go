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

// updateGates notes whether a pod that bears the mark may start, and has the mark taken
// away then.
func (c *Controller) updateGates(key string, st *podState, p *corev1.Pod, gate egressip.StartGate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.gate.uid != p.UID || st.gate.open {
		return
	}
	if st.gate.state = gate; gate != egressip.Blocked {
		c.gates.Enqueue(key)
	}
}

// removePendingAnnotation takes the mark off a pod that may start. Where the lister does not show the
// mark yet, its event brings the pod here again.
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
	c.mu.Lock()
	var m startGate
	if st := c.states[key]; st != nil {
		m = st.gate
	}
	c.mu.Unlock()
	if m.uid != p.UID || m.open || m.state == egressip.Blocked {
		return nil
	}
	err = kube.PatchPod(ctx, c.deps.Kube, p, kube.Metadata{Annotations: map[string]*string{kube.AnnotationEgressPending: nil}})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	c.mu.Lock()
	if st := c.states[key]; st != nil && st.gate.uid == p.UID {
		st.gate.open = true
	}
	c.mu.Unlock()
	waited := time.Since(m.since)
	c.deps.Metrics.PodStarted(waited, m.state == egressip.Open)
	if m.state == egressip.Open {
		klog.V(2).InfoS("Pod may send", "pod", key, "after", waited)
	} else {
		klog.InfoS("Pod starts before its policies are in force", "pod", key, "after", waited)
	}
	c.pods.Enqueue(key)
	return nil
}

// setTranslated notes that a pod does not keep an EgressIP, whichever it is but for one,
// from releasing addresses to other nodes.
func (c *Controller) setTranslated(key, but string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.untranslated.of(key) {
		if name != but && c.untranslated.remove(name, key) {
			c.statuses.Enqueue(name)
		}
	}
}

// translated tells whether the pods that an EgressIP had when its nodes were decided are
// translated for by those that are to take addresses. Later ones are led to them when
// they are.
func (c *Controller) translated(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.untranslated.count(key) == 0
}

// updateStartGate notes whether a pod of an EgressIP, if it has one, leaves as it is to.
func (c *Controller) updateStartGate(key, name string, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.waiting.of(key) {
		if (settled || other != name) && c.waiting.remove(other, key) {
			c.statuses.Enqueue(other)
		}
	}
	if settled {
		return
	}
	if c.waiting.count(name) == 0 {
		c.statuses.Enqueue(name)
	}
	c.waiting.add(name, key)
}
