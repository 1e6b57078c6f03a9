package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMemo(t *testing.T) {
	calls := 0
	m := NewMemo(func(n *corev1.Node) string {
		calls++
		return n.Labels["a"]
	})
	node := func(value string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": value}}}
	}
	first, second := node("1"), node("2")
	for i, step := range []struct {
		obj   *corev1.Node
		want  string
		calls int
	}{{first, "1", 1}, {first, "1", 1}, {second, "2", 2}, {second, "2", 2}, {first, "1", 3}} {
		if got := m.Of("n", step.obj); got != step.want || calls != step.calls {
			t.Errorf("step %d: %q after %d calls, want %q after %d", i, got, calls, step.want, step.calls)
		}
	}
	m.Forget("n")
	if m.Of("n", first); calls != 4 {
		t.Errorf("%d calls after it was forgotten", calls)
	}
}
