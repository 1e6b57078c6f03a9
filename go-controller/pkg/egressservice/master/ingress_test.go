package master

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestIngressOfNode: an ingress address that is a node's is refused with a condition that names it, and the other address of its
// family is used, until it no longer belongs to the node.
func TestIngressOfNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := claimant()
		w := newWorld(t, n, service("demo-svc", append([]string{"172.18.0.9"}, demoIngress...)...), slice("demo-svc", demoPods...), egress("demo-svc"))
		w.start()
		w.eventually("the second address to be used", w.uses("5.5.5.5", v1.ConditionIngressRefused, "NodeAddress"))
		w.event("IngressRefused")
		w.served(demo, w.anyHost(demo))
		w.restartsQuietly()
		w.remove(n)
		w.eventually("the first address to be used", w.uses("172.18.0.9", "", ""))
	})
}

// TestIngressOfNodeLater: an ingress address that is served stays in use when it becomes a node's address: pods must not
// leave with another. A condition says so until the claim is gone, also after a restart, while endpoints change, and on another host.
func TestIngressOfNodeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := service("demo-svc", append([]string{"172.18.0.9"}, demoIngress...)...)
		endpoints := slice("demo-svc", demoPods...)
		w := newWorld(t, svc, endpoints, egress("demo-svc"))
		w.start()
		host := w.anyHost(demo)
		w.eventually("the first address to be used", w.uses("172.18.0.9", "", ""))
		n := claimant()
		w.create(n)
		claimed := w.uses("172.18.0.9", v1.ConditionConflict, conditions.ReasonAddressInUse)
		w.eventually("the claim to be reported", claimed)
		w.event(eventConflict)
		w.served(demo, host)
		w.restartsQuietly()

		endpoints.Endpoints = endpoints.Endpoints[1:]
		w.update(endpoints)
		w.eventually("fewer endpoints", func() bool {
			return strings.Count(w.nb.DumpFeature(egressservice.Feature), "nexthops") == len(endpoints.Endpoints) && claimed()
		})
		w.health.Set(host, place.Dead)
		w.eventually("another host", func() bool { return w.anyHost(demo) != host && claimed() })
		w.remove(n)
		w.eventually("the claim to be gone", w.uses("172.18.0.9", "", ""))
	})
}

// claimant is a node with an ingress address of the tests as its own. It is no candidate.
func claimant() *corev1.Node {
	n := node("ovn-worker9", 9)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.18.0.9"}}
	n.Status.Conditions = nil
	return n
}

// uses returns whether the demo's IPv4 address is the given one, and the conditions about addresses are as expected: the one of
// the given type and reason, or none.
func (w *world) uses(ip, kind, reason string) func() bool {
	return func() bool {
		eg, err := w.master.reader.Object(demo)
		if err != nil || eg == nil {
			return false
		}
		s, _, err := w.master.reader.Decode(eg)
		if err != nil || len(s.Ingress) != 2 || s.Ingress[0].String() != ip || !w.programmed(demo) {
			return false
		}
		for _, known := range []string{v1.ConditionIngressRefused, v1.ConditionConflict} {
			c := meta.FindStatusCondition(eg.Status.Conditions, known)
			is := c != nil && c.Status == metav1.ConditionTrue
			if is != (known == kind) || is && (c.Reason != reason || !strings.Contains(c.Message, `"172.18.0.9"`) || !strings.Contains(c.Message, "node ovn-worker9")) {
				return false
			}
		}
		return true
	}
}

// restartsQuietly restarts the master, which must not write anything but nodes.
func (w *world) restartsQuietly() {
	host := w.anyHost(demo)
	w.stop()
	w.forgetWrites()
	w.start()
	w.served(demo, host)
	fakeapi.Settle()
	if writes := slices.DeleteFunc(w.writes(), func(s string) bool { return strings.HasPrefix(s, "nodes/") }); len(writes) != 0 {
		w.t.Errorf("writes at a restart: %v", writes)
	}
}
