package kube

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// FuzzGateways decodes arbitrary annotations about external gateways.
func FuzzGateways(f *testing.F) {
	f.Add(`172.18.0.51, fc00::51,`)
	f.Add(`[{"name":"ns/net1","ips":["172.18.0.61","fc00::61/64"]}]`)
	f.Add(`[{"name":"net1","ips":["nowhere"]},{}]`)
	f.Add(`::ffff:10.0.0.1%eth0,red,,blue`)
	f.Fuzz(func(t *testing.T, value string) {
		addrs, _ := ParseAddrs(value)
		again, bad := ParseAddrs(FormatAddrs(addrs))
		for _, a := range addrs {
			if !slices.Contains(again, a) || a.Is4In6() {
				t.Errorf("%s of %q is lost: %v", a, value, again)
			}
		}
		if len(bad) > 0 || len(again) > len(addrs) {
			t.Errorf("%q does not round-trip: %v %v", value, again, bad)
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{
			AnnotationNetworkStatus: value, AnnotationRoutingNamespaces: value, AnnotationBFDEnabled: value,
		}}}
		networks, err := NetworkStatus(p)
		if err != nil && len(networks) > 0 {
			t.Errorf("%q: networks %v besides the error %v", value, networks, err)
		}
		for _, n := range networks {
			for _, a := range n.Addrs {
				if !a.IsValid() || a.Is4In6() {
					t.Errorf("%q: address %v of %s", value, a, n.Name)
				}
			}
		}
		if slices.Contains(RoutingNamespaces(p), "") {
			t.Errorf("%q: a namespace without a name", value)
		}
		BFDEnabled(p.Annotations)
	})
}

// TestNetworkStatus: an invalid address concerns only its own network, where it is reported.
func TestNetworkStatus(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        []topology.Attachment
		fails       bool
	}{
		{"with and without a prefix length", `[{"name":"ns/a","ips":["172.18.0.61","fc00::61/64"]}]`,
			[]topology.Attachment{{Name: "ns/a", Addrs: addrs("172.18.0.61", "fc00::61")}}, false},
		{"an invalid address on another network", `[{"name":"a","ips":["nowhere"]},{"name":"b","ips":["172.18.0.61"]}]`,
			[]topology.Attachment{{Name: "a", Bad: []string{"nowhere"}}, {Name: "b", Addrs: addrs("172.18.0.61")}}, false},
		{"an invalid address besides a valid one", `[{"name":"a","ips":["172.18.0.61","","fc00::61/200"]}]`,
			[]topology.Attachment{{Name: "a", Addrs: addrs("172.18.0.61"), Bad: []string{"", "fc00::61/200"}}}, false},
		{"no JSON", `no json`, nil, true},
	} {
		got, err := NetworkStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationNetworkStatus: c.value}}})
		if !reflect.DeepEqual(got, c.want) || (err != nil) != c.fails {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// TestReadyNow: only pods that are running, ready and not being deleted are gateways. If a pod
// was marked as not ready because of its node, it counts as ready if the node does.
func TestReadyNow(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
		change(p)
		return p
	}
	taken := func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }
	unready := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			taken(p)
			p.Status.Conditions[1].Reason = reason
		}
	}
	for _, c := range []struct {
		name                      string
		pod                       *corev1.Pod
		ready, unready, byKubelet bool // with its node being ready, and not
	}{
		{"ready", pod(func(*corev1.Pod) {}), true, true, true},
		{"taken", pod(taken), true, false, true},
		{"not ready", pod(unready("ContainersNotReady")), false, false, false},
		{"not ready by a gate", pod(unready("ReadinessGatesNotReady")), false, false, false},
		{"taken and then a container not ready", pod(func(p *corev1.Pod) {
			taken(p)
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		}), false, false, false},
		{"taken, and nothing known of containers", pod(func(p *corev1.Pod) {
			taken(p)
			p.Status.Conditions = p.Status.Conditions[1:]
		}), false, false, false},
		{"unknown", pod(func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionUnknown }), false, false, false},
		{"never probed", pod(func(p *corev1.Pod) { p.Status.Conditions = nil }), false, false, false},
		{"pending", pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), false, false, true},
		{"ended", pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), false, false, true},
		{"terminating", pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), false, false, true},
		{"a mirror that is deleted", pod(func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{}
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
		}), true, true, true},
		{"terminating and taken", pod(func(p *corev1.Pod) {
			taken(p)
			p.DeletionTimestamp = &metav1.Time{}
		}), false, false, true},
	} {
		if got := ReadyNow(c.pod, func(node string) bool { return node == "a" }); got != c.ready {
			t.Errorf("%s, on a node that is ready: %v", c.name, got)
		}
		if got := ReadyNow(c.pod, func(string) bool { return false }); got != c.unready {
			t.Errorf("%s, on a node that is not: %v", c.name, got)
		}
		if got := KubeletReady(c.pod); got != c.byKubelet {
			t.Errorf("%s, by the kubelet: %v", c.name, got)
		}
	}
}
