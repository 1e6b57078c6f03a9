package master

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// says does the part of a node on which the network is missing.
func (w *world) says(node string) {
	w.t.Helper()
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status/programmed",
		"value": v1.ProgrammedStatus{Host: node, Problem: "there is no routing table blue"}}})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.egress.EgressServiceV1().EgressServices("default").Patch(
		context.Background(), "demo-svc", types.JSONPatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		w.t.Fatal(err)
	}
}

// reports reports whether the status has the entry of a node, "" for none, and whether the
// condition matches it.
func (w *world) reports(node string) bool {
	w.t.Helper()
	eg, err := w.egress.EgressServiceV1().EgressServices("default").Get(context.Background(), "demo-svc", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	c := meta.FindStatusCondition(eg.Status.Conditions, v1.ConditionProgrammed)
	if c == nil || eg.Status.Host != v1.HostAll {
		return false
	}
	if node == "" {
		return eg.Status.Programmed == nil && c.Status == metav1.ConditionTrue && c.Reason == egressservice.ReasonEveryNode
	}
	return eg.Status.Programmed != nil && eg.Status.Programmed.Host == node &&
		c.Status == metav1.ConditionFalse && c.Reason == egressservice.ReasonNetworkNotFound
}

// TestWordOfNodeThatIsGone: if every node serves, the entry of a deleted node
// is removed, with or without a running master, and the entries of others stay.
func TestWordOfNodeThatIsGone(t *testing.T) {
	perNode := egress("demo-svc", func(e *v1.EgressService) {
		e.Spec.SourceIPBy, e.Spec.Network = v1.SourceIPNetwork, "blue"
	})
	objs := append(demoObjects()[1:], perNode)
	bubble(t, "deleted", func(t *testing.T) {
		w := newWorld(t, objs...)
		w.start()
		w.eventually("every node", func() bool { return w.reports("") })
		w.says("ovn-worker")
		w.eventually("the word of the node", func() bool { return w.reports("ovn-worker") })
		w.forgetWrites()
		w.remove(node("ovn-worker2", 1))
		fakeapi.Settle()
		if !w.reports("ovn-worker") || len(w.writes()) != 0 {
			t.Errorf("another node was deleted: %v", w)
		}
		w.remove(node("ovn-worker", 0))
		w.eventually("the word to go", func() bool { return w.reports("") })
		w.checkWrites(`egressservices/demo-svc {"metadata":{"uid":"uid-demo-svc"},"status":{"is":"EveryNode","programmed":null}}`)
		w.says("ovn-control-plane")
		w.eventually("the word of the next", func() bool { return w.reports("ovn-control-plane") })
	})
	bubble(t, "deleted without a master", func(t *testing.T) {
		w := newWorld(t, objs...)
		w.start()
		w.eventually("every node", func() bool { return w.reports("") })
		w.says("ovn-worker")
		w.eventually("the word of the node", func() bool { return w.reports("ovn-worker") })
		w.stop()
		w.remove(node("ovn-worker", 0))
		w.start()
		w.eventually("the word to go", func() bool { return w.reports("") })
	})
}

// TestPublishedFirst: a pod that loses its address while its EgressService is decoded gets no policy, since another pod may already have
// the address.
func TestPublishedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := service("demo-svc", demoIngress...)
		svc.Spec.Selector = map[string]string{"app": "demo"}
		w := newWorld(t, egress("demo-svc"), svc, slice("demo-svc", demoPods...))
		lost := netip.MustParseAddr("10.244.0.77")
		asked := false
		w.given = func(key string, _ types.UID) []netip.Addr {
			if key != "default/young" || w.pods.Has(lost) {
				return nil
			}
			asked = true
			return []netip.Addr{lost}
		}
		w.start()
		w.anyHost(demo)
		young := pod("default", lost.String(), "ovn-worker")
		young.Name, young.Status, young.Labels = "young", corev1.PodStatus{}, map[string]string{"app": "demo"}
		w.create(young)
		w.master.Look("default/young")
		fakeapi.Settle()
		if got := w.nb.Dump(); !asked || strings.Contains(got, lost.String()) {
			t.Errorf("asked: %v; policies:\n%s", asked, got)
		}
	})
}
