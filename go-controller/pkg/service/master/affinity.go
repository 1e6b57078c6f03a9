package master

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// limit is what an Event has reported about the affinity of the Service with a UID; see report.
type limit struct {
	uid  types.UID
	text string
}

// reportAffinity writes an Event about an unsupported affinity timeout, once for each change.
// If the existing load balancers, which are not rewritten yet, have affinity, an earlier
// master has already written the Event.
func (c *Controller) reportAffinity(key string, svc *corev1.Service, s service.Service) {
	text := s.AffinityLimit()
	c.mu.Lock()
	last, seen := c.limits[key]
	if text == "" {
		delete(c.limits, key)
	} else {
		c.limits[key] = limit{svc.UID, text}
	}
	c.mu.Unlock()
	if text == "" || last == (limit{svc.UID, text}) || !seen && service.HasAffinity(c.deps.Writer.Rows(service.Owner(key))) {
		return
	}
	klog.V(2).InfoS("The timeout of a session affinity is not applied", "service", key, "timeout", s.Affinity)
	c.deps.Recorder.Event(svc, corev1.EventTypeWarning, service.ReasonAffinityTimeout, text)
}
