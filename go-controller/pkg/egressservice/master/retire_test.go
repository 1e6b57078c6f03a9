package master

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	egressfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestRetire: while the feature is disabled, nothing says that a node serves an EgressService, and nothing that a host
// acknowledged before counts once the feature is enabled again.
func TestRetire(t *testing.T) {
	ctx := t.Context()
	served := &v1.EgressService{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo", UID: "1", Generation: 2}}
	served.Status = v1.EgressServiceStatus{Host: "n1", Programmed: &v1.ProgrammedStatus{Host: "n1"}, Conditions: []metav1.Condition{
		{Type: v1.ConditionAssigned, Status: metav1.ConditionTrue, Reason: "HostAssigned"},
		{Type: v1.ConditionProgrammed, Status: metav1.ConditionTrue, Reason: "Programmed"},
		{Type: v1.ConditionConflict, Status: metav1.ConditionFalse, Reason: "NoConflict"},
	}}
	cs := fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{demoHost: "", "zone": "a"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: map[string]string{"zone": "b"}}})
	egress := egressfake.NewSimpleClientset(served)
	if err := Retire(ctx, cs, egress); err != nil {
		t.Fatal(err)
	}
	now, err := egress.EgressServiceV1().EgressServices("default").Get(ctx, "demo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if now.Status.Host != "" || now.Status.Programmed != nil || len(now.Status.Conditions) != 2 {
		t.Errorf("status %+v", now.Status)
	}
	for _, kind := range []string{v1.ConditionAssigned, v1.ConditionProgrammed} {
		c := meta.FindStatusCondition(now.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != 2 || !conditions.Known(conditions.EgressService, *c) {
			t.Errorf("%s: %+v", kind, c)
		}
	}
	for name, want := range map[string]string{"n1": "a", "n2": "b"} {
		n, err := cs.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(n.Labels) != 1 || n.Labels["zone"] != want {
			t.Errorf("labels of %s: %v", name, n.Labels)
		}
	}

	cs.ClearActions()
	egress.ClearActions()
	if err := Retire(ctx, cs, egress); err != nil {
		t.Fatal(err)
	}
	for _, a := range append(cs.Actions(), egress.Actions()...) {
		if a.GetVerb() == "patch" {
			t.Errorf("it is written again: %+v", a)
		}
	}
}

// TestRetireWithoutKind: the labels go even if the kind is not installed, and a failure to list is an error.
func TestRetireWithoutKind(t *testing.T) {
	for code, fails := range map[int32]bool{http.StatusNotFound: false, http.StatusInternalServerError: true} {
		cs := fakeapi.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{demoHost: ""}}})
		egress := egressfake.NewSimpleClientset()
		egress.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewGenericServerResponse(int(code), "list", schema.GroupResource{}, "", "", 0, true)
		})
		if err := Retire(t.Context(), cs, egress); (err != nil) != fails {
			t.Errorf("status %d: %v", code, err)
		}
		n, err := cs.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil || len(n.Labels) > 0 != fails {
			t.Errorf("status %d: labels %v, %v", code, n.Labels, err)
		}
	}
}
