package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodeHeard: a node that is Unknown counts as heard if the kubelet has reported later.
func TestNodeHeard(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.Time{Time: time.Unix(second, 0)} }
	for _, c := range []struct {
		name           string
		status         corev1.ConditionStatus
		beat, since    metav1.Time
		ready, unheard bool
	}{
		{"ready", corev1.ConditionTrue, at(9), at(1), true, false},
		{"not ready", corev1.ConditionFalse, at(9), at(1), false, false},
		{"not heard", corev1.ConditionUnknown, at(1), at(9), false, true},
		{"heard in the same second", corev1.ConditionUnknown, at(9), at(9), true, false},
		{"heard since", corev1.ConditionUnknown, at(10), at(9), true, false},
		{"by a clock that is ahead", corev1.ConditionUnknown, at(20), at(9), false, true},
		{"without times", corev1.ConditionUnknown, metav1.Time{}, metav1.Time{}, false, true},
		{"never heard", corev1.ConditionUnknown, metav1.Time{}, at(9), false, true},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionUnknown, LastHeartbeatTime: at(10), LastTransitionTime: at(1)},
			{Type: corev1.NodeReady, Status: c.status, LastHeartbeatTime: c.beat, LastTransitionTime: c.since}}}}
		if NodeReady(n) != c.ready || NodeReadyUnknown(n) != c.unheard {
			t.Errorf("%s: ready %t, unheard %t", c.name, NodeReady(n), NodeReadyUnknown(n))
		}
	}
}
