package fakeapi

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestStrict: writes with an outdated version, or for a previous object of the same name, are refused.
func TestStrict(t *testing.T) {
	cs := NewClientset()
	Strict(cs)
	nodes := cs.CoreV1().Nodes()
	ctx := t.Context()
	first, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "one"}}, metav1.CreateOptions{})
	if err != nil || first.ResourceVersion == "" {
		t.Fatalf("created with version %q: %v", first.ResourceVersion, err)
	}
	patch := func(kind types.PatchType, text string) (*corev1.Node, error) {
		return nodes.Patch(ctx, "a", kind, []byte(text), metav1.PatchOptions{}, "status")
	}
	second, err := patch(types.MergePatchType, `{"metadata":{"uid":"one","resourceVersion":"`+first.ResourceVersion+`"},"status":{"phase":"Pending"}}`)
	if err != nil || second.ResourceVersion == first.ResourceVersion {
		t.Fatalf("patched to version %q: %v", second.ResourceVersion, err)
	}
	if _, err := nodes.UpdateStatus(ctx, first, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a late update: %v", err)
	}
	third, err := nodes.UpdateStatus(ctx, second, metav1.UpdateOptions{})
	if err != nil || third.ResourceVersion == second.ResourceVersion {
		t.Errorf("updated to version %q: %v", third.ResourceVersion, err)
	}
	fourth, err := patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/uid","value":"one"},{"op":"add","path":"/status/phase","value":"Running"}]`)
	if err != nil || fourth.ResourceVersion == third.ResourceVersion || fourth.Status.Phase != corev1.NodeRunning {
		t.Errorf("patched to version %q, %q: %v", fourth.ResourceVersion, fourth.Status.Phase, err)
	}
	for _, late := range []string{`{"metadata":{"uid":"other"},"status":{"phase":"x"}}`, `{"metadata":{"resourceVersion":"` + third.ResourceVersion + `"},"status":{"phase":"x"}}`} {
		if _, err := patch(types.MergePatchType, late); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", late, err)
		}
	}
	if _, err := patch(types.JSONPatchType, `[{"op":"test","path":"/metadata/uid","value":"other"}]`); !apierrors.IsInvalid(err) {
		t.Errorf("a JSON patch of another incarnation: %v", err)
	}
	if last, err := nodes.Get(ctx, "a", metav1.GetOptions{}); err != nil || last.ResourceVersion != fourth.ResourceVersion || last.UID != "one" {
		t.Errorf("in the end version %q of %s: %v", last.ResourceVersion, last.UID, err)
	}
	if _, err := patch(types.MergePatchType, `{"status":{"phase":"Running"}}`); err != nil {
		t.Errorf("a patch that names nothing: %v", err)
	}
}
