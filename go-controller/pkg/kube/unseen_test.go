package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

func TestUnseen(t *testing.T) {
	node := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: version}}
	}
	cs := fakeapi.NewClientset(node("1"))
	var u Unseen
	write := func() {
		t.Helper()
		if err := PatchNode(t.Context(), cs, node("1"), Metadata{Labels: map[string]*string{"a": Value("b")}, Unseen: &u}); err != nil {
			t.Fatal(err)
		}
	}
	follows := func(what string, old, new any, want bool) {
		t.Helper()
		if got := u.Follows(old, new); got != want {
			t.Errorf("%s follows: %t", what, got)
		}
	}
	follows("an event before any write", node("0"), node("1"), false)
	write()
	follows("the first appearance", nil, node("1"), false)
	follows("a list with what was there before", node("1"), node("1"), false)
	follows("the first event", node("1"), node("3"), true)
	follows("the second event", node("3"), node("4"), false)
	write()
	follows("a deletion", node("4"), nil, false)
	follows("an event after it", node("4"), node("5"), false)
	if len(u.written) > 0 {
		t.Errorf("remembered are %v", u.written)
	}
}
