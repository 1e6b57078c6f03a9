package master

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/waits"
)

// measureFailover records the progress of an EgressIP's decision, unless
// another decision was made meanwhile.
func (c *Controller) measureFailover(key string, d egressip.Decision, is []metav1.Condition) {
	if last, ok := c.decisions.of(key); !ok || !last.Equal(d) {
		return
	}
	switch programmed := meta.FindStatusCondition(is, v1.ConditionProgrammed); {
	case programmed == nil:
	case programmed.Status == metav1.ConditionTrue:
		c.deps.Metrics.Programmed(conditions.EgressIP, key)
	case programmed.Reason == egressip.ReasonWaitingForPolicies:
		c.deps.Metrics.Acknowledged(conditions.EgressIP, key)
	}
}

// Held returns the number of pods whose start waits until their traffic leaves as intended.
func (c *Controller) Held() int { return len(c.held()) }

// held returns a Wait for each of these pods.
func (c *Controller) held() []waits.Wait {
	var held []waits.Wait
	for key, since := range c.podStates.gated() {
		held = append(held, waits.Wait{Part: "egressip-pods", Object: key, Since: since, Limit: podStartTimeout,
			For: "its policies and translations to be in force, before it starts"})
	}
	return held
}
