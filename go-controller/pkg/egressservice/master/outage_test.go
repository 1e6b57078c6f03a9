package master

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestOutage: after an outage of the API server Kubernetes marks one node after the other,
// since it has not heard of any. A host that answers probes stays one, and one that does
// not is replaced.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, service("demo-svc", demoIngress...), slice("demo-svc", demoPods...), egress("demo-svc"))
		w.start()
		first := w.anyHost(demo)
		w.event("HostAssigned Node " + first)
		fakeapi.Settle()
		w.forgetWrites()
		for _, n := range []string{first, other(first), "ovn-control-plane"} {
			w.changeNode(n, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}
		<-time.After(time.Minute)
		fakeapi.Settle()
		w.checkWrites()
		w.served(demo, first)

		w.health.Set(first, place.Dead)
		w.served(demo, other(first))
		w.event(fmt.Sprintf("HostChanged Node %s serves the egress traffic instead of %s: unreachable", other(first), first))
	})
}
