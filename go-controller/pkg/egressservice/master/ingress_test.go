package master

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestIngressOfNode: an ingress address that becomes a node's address is refused with a
// condition that names it, the other address of its family is used, and the former state returns when
// it no longer belongs to the node.
func TestIngressOfNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, service("demo-svc", append([]string{"172.18.0.9"}, demoIngress...)...), slice("demo-svc", demoPods...), egress("demo-svc"))
		w.start()
		host := w.anyHost(demo)
		uses := func(ip string, refused bool) func() bool {
			return func() bool {
				eg, err := w.master.reader.Object(demo)
				if err != nil || eg == nil {
					return false
				}
				s, _, err := w.master.reader.Decode(eg)
				if err != nil || len(s.Ingress) != 2 || s.Ingress[0].String() != ip {
					return false
				}
				c := meta.FindStatusCondition(eg.Status.Conditions, v1.ConditionIngressRefused)
				if !refused {
					return c == nil
				}
				return c != nil && c.Status == metav1.ConditionTrue && c.Reason == "NodeAddress" &&
					strings.Contains(c.Message, `"172.18.0.9"`) && strings.Contains(c.Message, "node ovn-worker9") && w.programmed(demo)
			}
		}
		w.eventually("the first address to be used", uses("172.18.0.9", false))
		n := node("ovn-worker9", 9)
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.18.0.9"}}
		n.Status.Conditions = nil // it is not a candidate
		w.create(n)
		w.eventually("the second address to be used", uses("5.5.5.5", true))
		w.event("IngressRefused")
		w.served(demo, host)

		w.stop()
		w.forgetWrites()
		w.start()
		w.served(demo, host)
		fakeapi.Settle()
		if writes := slices.DeleteFunc(w.writes(), func(s string) bool { return strings.HasPrefix(s, "nodes/") }); len(writes) != 0 {
			t.Errorf("writes at a restart: %v", writes)
		}
		w.remove(n)
		w.eventually("the first address to be used again", uses("172.18.0.9", false))
	})
}
