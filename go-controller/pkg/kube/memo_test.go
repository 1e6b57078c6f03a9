package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

func TestMemo(t *testing.T) {
	cs := fakeapi.NewClientset()
	factory := NewInformers(cs)
	calls := 0
	m, err := NewMemo(factory.Core().V1().Nodes().Informer(), func(n *corev1.Node) string {
		calls++
		return n.Labels["a"]
	})
	if err != nil {
		t.Fatal(err)
	}
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
	// A deleted object is not kept.
	if _, err := cs.CoreV1().Nodes().Create(t.Context(), first, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if err := cs.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "nothing to be kept", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.made) == 0
	})
}
