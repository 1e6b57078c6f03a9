package master

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestOutage: after an outage of the API server, Kubernetes marks one node after the other,
// since it has no reports of any. A host that answers probes stays the host, and one that does
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
		// The kubelet of the host is the last one with a report.
		for _, n := range []string{"ovn-control-plane", other(first)} {
			w.nodeSays(n, corev1.ConditionTrue)
			<-time.After(10 * time.Second)
			synctest.Wait()
		}
		if got := w.writes(); len(got) != 0 {
			t.Errorf("wrote %q while kubelets came back", got)
		}

		w.health.Set(first, place.Dead)
		w.served(demo, other(first))
		w.event(fmt.Sprintf("HostChanged Node %s serves the egress traffic instead of %s: unreachable", other(first), first))
	})
}

// localOutage is a world with an EgressService of one family that requires hosts with endpoints;
// each node has one. A worker serves it, whose name is returned.
func localOutage(t *testing.T, ingress string, pods []string) (*world, *discoveryv1.EndpointSlice, string) {
	svc := service("demo-svc", ingress)
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	s := slice("demo-svc", pods...)
	s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	for i, n := range outageNodes {
		s.Endpoints[i].NodeName = &n
	}
	w := newWorld(t, egress("demo-svc"), svc, s)
	for i := range pods {
		w.podSays(pods[i], corev1.ConditionTrue, "")
	}
	w.start()
	fakeapi.Settle()
	first, _, _ := w.hosts(demo)
	w.event("HostAssigned Node " + first)
	w.forgetWrites()
	return w, s, first
}

var outageNodes = []string{"ovn-worker", "ovn-worker2", "ovn-control-plane"}

// podSays sets the Ready condition of the pod with an address to status, with a reason. Its
// containers are ready if the reason is empty.
func (w *world) podSays(addr string, status corev1.ConditionStatus, reason string) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p, err := w.kube.CoreV1().Pods("default").Get(context.Background(), pod("default", addr, "").Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		containers := corev1.ConditionTrue
		if reason != "" {
			containers = corev1.ConditionFalse
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, Reason: reason},
			{Type: corev1.ContainersReady, Status: containers}}
		return w.try(p, "update")
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// hostIs waits until a node is the host.
func (w *world) hostIs(node string) {
	w.t.Helper()
	w.eventually(node+" to be the host", func() bool {
		status, _, labels := w.hosts(demo)
		return status == node && labels == node
	})
}

// nodeSays sets a node's Ready condition to status.
func (w *world) nodeSays(name string, status corev1.ConditionStatus) {
	w.t.Helper()
	w.changeNode(name, func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = status, metav1.Now()
	})
}

// listed makes Kubernetes' controller report which endpoints of a slice are ready.
func (w *world) listed(s *discoveryv1.EndpointSlice, ready ...bool) {
	w.t.Helper()
	s = s.DeepCopy()
	for i := range ready {
		s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: &ready[i], Serving: &ready[i]}
	}
	w.update(s)
	fakeapi.Settle()
}

// eachFamily runs a test in a bubble with pods of each family.
func eachFamily(t *testing.T, test func(t *testing.T, ingress string, pods []string)) {
	for i, pods := range [][]string{{"10.244.0.5", "10.244.1.5", "10.244.2.5"}, {"fd00:10:244:1::5", "fd00:10:244:2::5", "fd00:10:244:3::5"}} {
		t.Run([]string{"IPv4", "IPv6"}[i], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, demoIngress[i], pods) })
		})
	}
}

// TestOutageOfEndpoints: when nodes become not ready, Kubernetes marks their pods and then
// endpoints as not ready, and the kubelets revert this in the same order. A host that requires
// endpoints stays the host.
func TestOutageOfEndpoints(t *testing.T) {
	eachFamily(t, func(t *testing.T, ingress string, pods []string) {
		w, s, first := localOutage(t, ingress, pods)
		ready := []bool{true, true, true}
		for i, n := range outageNodes {
			w.nodeSays(n, corev1.ConditionUnknown)
			w.podSays(pods[i], corev1.ConditionFalse, "")
			ready[i] = false
			if i == len(outageNodes)-1 {
				break // all of them within a second
			}
			<-time.After(time.Second / 2)
			synctest.Wait()
		}
		w.listed(s, ready...)
		for _, n := range outageNodes {
			w.nodeSays(n, corev1.ConditionTrue)
			<-time.After(10 * time.Second)
			synctest.Wait()
		}
		for i, addr := range pods {
			w.podSays(addr, corev1.ConditionTrue, "")
			fakeapi.Settle()
			ready[i] = true
			w.listed(s, ready...)
		}
		w.checkWrites()
		w.hostIs(first)
	})
}

// TestEndpointFailsInOutage: a kubelet's report about a pod counts in an outage, too.
func TestEndpointFailsInOutage(t *testing.T) {
	eachFamily(t, func(t *testing.T, ingress string, pods []string) {
		w, s, first := localOutage(t, ingress, pods)
		for i, n := range outageNodes {
			w.nodeSays(n, corev1.ConditionUnknown)
			w.podSays(pods[i], corev1.ConditionFalse, "")
		}
		w.listed(s, false, false, false)
		w.hostIs(first)
		w.podSays(pods[slices.Index(outageNodes, first)], corev1.ConditionFalse, "ContainersNotReady")
		w.hostIs(other(first))
	})
}

// TestSliceOfSomebodyElse: a controller other than Kubernetes' own may report an endpoint as not
// ready regardless of the pod's state.
func TestSliceOfSomebodyElse(t *testing.T) {
	eachFamily(t, func(t *testing.T, ingress string, pods []string) {
		w, s, first := localOutage(t, ingress, pods)
		delete(s.Labels, discoveryv1.LabelManagedBy)
		ready := []bool{true, true, true}
		ready[slices.Index(outageNodes, first)] = false
		w.listed(s, ready...)
		w.hostIs(other(first))
	})
}

// TestHeartbeatAfterOutage: a host whose kubelet has reported since Kubernetes marked only this node
// stays the host.
func TestHeartbeatAfterOutage(t *testing.T) {
	eachFamily(t, func(t *testing.T, ingress string, pods []string) {
		w, s, first := localOutage(t, ingress, pods)
		w.nodeSays(first, corev1.ConditionUnknown)
		i := slices.Index(outageNodes, first)
		w.podSays(pods[i], corev1.ConditionFalse, "")
		<-time.After(time.Second)
		w.changeNode(first, func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() })
		ready := []bool{true, true, true}
		ready[i] = false
		w.listed(s, ready...)
		w.checkWrites()
		w.hostIs(first)
	})
}
