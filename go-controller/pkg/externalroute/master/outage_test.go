package master

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakereach"
)

// outageNodes are the nodes of the tests of outages.
var outageNodes = []string{"n0", "n1", "n2", "n3"}

// outage is a world with a gateway pod on n1 and one on n2, of one family, named by a policy and an
// annotation.
func outage(t *testing.T, gateways ...string) *world {
	dynamic := v1.ExternalNextHops{Dynamic: []v1.DynamicHop{{
		PodSelector:           metav1.LabelSelector{MatchLabels: map[string]string{"app": "gw"}},
		NamespaceSelector:     metav1.LabelSelector{MatchLabels: map[string]string{"name": "gw"}},
		NetworkAttachmentName: "net1",
	}}}
	w := newWorld(t, fake(), namespace("red"), namespace("blue"), namespace("gw"), pod("red", 0, 0), pod("blue", 0, 1),
		policy("p", map[string]string{"name": "red"}, dynamic))
	w.config.Cluster = append(w.config.Cluster, netip.MustParsePrefix("fd00:10:244::/48"))
	w.health = fakereach.New()
	for i, name := range outageNodes {
		n := node(i)
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.create(n)
		w.health.Set(name, place.Alive)
	}
	for i, gateway := range gateways {
		p := pod("gw", i+1, 9)
		p.Annotations = map[string]string{kube.AnnotationNetworkStatus: `[{"name":"gw/net1","ips":["` + gateway + `"]}]`,
			kube.AnnotationRoutingNamespaces: "blue", kube.AnnotationRoutingNetwork: "net1"}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
		w.create(p)
	}
	w.start()
	fakeapi.Settle()
	w.using(gateways...)
	return w
}

// using checks the gateways of the namespaces.
func (w *world) using(gateways ...string) {
	w.t.Helper()
	for _, ns := range []string{"red", "blue"} {
		if got, want := w.inUse(ns), strings.Join(gateways, ","); got != want {
			w.t.Errorf("namespace %s uses %q, not %q", ns, got, want)
		}
	}
}

// nodeSays sets a node's Ready condition to status.
func (w *world) nodeSays(name string, status corev1.ConditionStatus) {
	w.t.Helper()
	n, err := w.kube.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = status, metav1.Now()
	if _, err := w.kube.CoreV1().Nodes().UpdateStatus(w.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// podSays sets the Ready condition of the gateway pod on a node to status, with a reason.
func (w *world) podSays(node string, status corev1.ConditionStatus, reason string) {
	w.t.Helper()
	name := "p" + strings.TrimPrefix(node, "n") + "-9"
	p, err := w.kube.CoreV1().Pods("gw").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = status, reason
	if _, err := w.kube.CoreV1().Pods("gw").UpdateStatus(w.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// lose makes Kubernetes lose contact with nodes, as kube-controller-manager reports it: one node after the
// other, and at the same time the pods of each.
func (w *world) lose(nodes ...string) {
	w.t.Helper()
	for i, n := range nodes {
		w.nodeSays(n, corev1.ConditionUnknown)
		if n == "n1" || n == "n2" {
			w.podSays(n, corev1.ConditionFalse, "")
		}
		if i < len(nodes)-1 {
			<-time.After(time.Second)
			synctest.Wait()
		}
	}
}

// eachFamily runs a test in a bubble for gateways of each family.
func eachFamily(t *testing.T, test func(t *testing.T, gateways []string)) {
	for family, gateways := range map[string][]string{"IPv4": {"172.18.0.61", "172.18.0.62"}, "IPv6": {"fc00::61", "fc00::62"}} {
		t.Run(family, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, gateways) })
		})
	}
}

// TestOutage: after an outage of the API server, Kubernetes reports one node after the other
// as Unknown, and their pods as not ready. Their kubelets first report the nodes
// as ready, also one after the other, and then the pods. Nothing is written at
// any time.
func TestOutage(t *testing.T) {
	eachFamily(t, func(t *testing.T, gateways []string) {
		w := outage(t, gateways...)
		before := w.patchCount()
		w.lose("n1", "n2", "n3", "n0")
		fakeapi.Settle()
		w.using(gateways...)
		for _, n := range outageNodes {
			w.nodeSays(n, corev1.ConditionTrue)
			<-time.After(10 * time.Second)
			synctest.Wait()
			w.using(gateways...)
		}
		fakeapi.Settle()
		w.using(gateways...)
		for _, n := range []string{"n1", "n2"} {
			w.podSays(n, corev1.ConditionTrue, "")
			fakeapi.Settle()
		}
		w.using(gateways...)
		if n := w.patchCount() - before; n != 0 {
			t.Errorf("%d patches in an outage:\n%s", n, w)
		}
	})
}

// TestDeadGatewayNode: the gateway of a single node with which Kubernetes has lost contact is removed,
// after a delay in which it could have been an outage.
func TestDeadGatewayNode(t *testing.T) {
	eachFamily(t, func(t *testing.T, gateways []string) {
		w := outage(t, gateways...)
		w.lose("n1")
		<-time.After(time.Second)
		synctest.Wait()
		w.using(gateways...)
		fakeapi.Settle()
		w.using(gateways[1])
		w.nodeSays("n1", corev1.ConditionTrue)
		fakeapi.Settle()
		w.using(gateways...)
		w.nodeSays("n1", corev1.ConditionFalse)
		fakeapi.Settle()
		w.using(gateways[1])

		// A pod stays ready until Kubernetes reports otherwise about the pod itself.
		w.nodeSays("n2", corev1.ConditionUnknown)
		fakeapi.Settle()
		w.using(gateways[1])
		w.podSays("n2", corev1.ConditionFalse, "")
		fakeapi.Settle()
		w.using()
	})
}

// TestGatewayFailsInOutage: a kubelet's report about a pod counts in an outage, too, and a node
// that is unreachable then is dead.
func TestGatewayFailsInOutage(t *testing.T) {
	eachFamily(t, func(t *testing.T, gateways []string) {
		w := outage(t, gateways...)
		w.lose(outageNodes...)
		fakeapi.Settle()
		w.podSays("n1", corev1.ConditionFalse, "ContainersNotReady")
		fakeapi.Settle()
		w.using(gateways[1])
		w.podSays("n1", corev1.ConditionTrue, "")
		w.health.Set("n2", place.Dead)
		fakeapi.Settle()
		w.using(gateways[0])
		w.health.Set("n2", place.Alive)
		fakeapi.Settle()
		w.using(gateways...)
	})
}

// TestHeartbeatAfterOutage: a single node whose kubelet has reported since Kubernetes marked it is
// not dead, whatever the conditions of the node and its pods.
func TestHeartbeatAfterOutage(t *testing.T) {
	eachFamily(t, func(t *testing.T, gateways []string) {
		w := outage(t, gateways...)
		before := w.patchCount()
		w.lose("n1")
		<-time.After(time.Second)
		n, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		if _, err := w.kube.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		fakeapi.Settle()
		w.using(gateways...)
		if n := w.patchCount() - before; n != 0 {
			t.Errorf("%d patches:\n%s", n, w)
		}
	})
}
