package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestRemoveNodeCondition: only a condition with one of our reasons is removed.
func TestRemoveNodeCondition(t *testing.T) {
	for reason, want := range map[string]int{"Ours": 1, "Theirs": 2} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Reason: "Ours"}, {Type: corev1.NodeNetworkUnavailable, Reason: reason},
		}}}
		cs := fakeapi.NewClientset(node)
		if err := RemoveNodeCondition(t.Context(), cs, node, corev1.NodeNetworkUnavailable, "Ours", "OursToo"); err != nil {
			t.Fatal(err)
		}
		after, err := cs.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if have := after.Status.Conditions; len(have) != want || have[0].Type != corev1.NodeReady {
			t.Errorf("reason %s: left with %v", reason, have)
		}
	}
}
