package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// TestConditionOfRecreatedNode: a condition meant for a deleted node is neither set on nor removed from the one that
// has its name now.
func TestConditionOfRecreatedNode(t *testing.T) {
	refused := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "Ours"}
	was := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "was"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{refused}}}
	is := was.DeepCopy()
	is.UID = "is"
	cs := fakeapi.NewClientset(is)
	fakeapi.Strict(cs)
	ready := corev1.NodeCondition{Type: refused.Type, Status: corev1.ConditionFalse, Reason: "Ready"}
	if err := SetNodeCondition(t.Context(), cs, was, ready); !apierrors.IsConflict(err) {
		t.Errorf("set: %v, want a conflict", err)
	}
	if err := RemoveNodeCondition(t.Context(), cs, was, refused.Type, refused.Reason); !apierrors.IsConflict(err) {
		t.Errorf("removed: %v, want a conflict", err)
	}
	after, err := cs.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if have := after.Status.Conditions; len(have) != 1 || have[0].Reason != refused.Reason {
		t.Errorf("the new node has %v", have)
	}
	if err := SetNodeCondition(t.Context(), cs, after, ready); err != nil {
		t.Error(err)
	}
}
