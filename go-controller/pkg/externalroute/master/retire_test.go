package master

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	routefake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned/fake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fakeapi"
)

// TestRetire: while the feature is disabled, nothing says that gateways are in use.
func TestRetire(t *testing.T) {
	ctx := t.Context()
	p := policy("p", anyGWs, hops("172.18.0.51"))
	p.Status = v1.AdminPolicyBasedExternalRouteStatus{
		Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Applied"},
			{Type: v1.ConditionConflict, Status: metav1.ConditionFalse, Reason: "NoConflict"}},
		Hops: []v1.HopStatus{{IP: "172.18.0.51"}}, Namespaces: 1, Pods: 2, Status: v1.OutcomeSuccess, Messages: []string{"m"},
	}
	cs := fakeapi.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red",
		Annotations: map[string]string{kube.AnnotationGatewaysInUse: "172.18.0.51", kube.AnnotationRoutingExternalGWs: "172.18.0.51"}}})
	routes := routefake.NewSimpleClientset(p)
	for range 2 {
		if err := Retire(ctx, cs, routes); err != nil {
			t.Fatal(err)
		}
	}
	patches := 0
	for _, a := range append(cs.Actions(), routes.Actions()...) {
		if a.GetVerb() == "patch" {
			patches++
		}
	}
	if patches != 2 {
		t.Errorf("%d patches, want one of the policy and one of the namespace", patches)
	}
	now, err := routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Get(ctx, "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := now.Status
	if len(s.Hops) > 0 || s.Namespaces != 0 || s.Pods != 0 || s.Status != v1.OutcomeFail || len(s.Messages) != 1 || s.LastTransitionTime.IsZero() || len(s.Conditions) != 1 {
		t.Fatalf("status %+v", s)
	}
	if c := s.Conditions[0]; c.Status != metav1.ConditionFalse || !conditions.Known(conditions.AdminPolicyBasedExternalRoute, c) {
		t.Errorf("condition %+v", c)
	}
	ns, err := cs.CoreV1().Namespaces().Get(ctx, "red", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := ns.Annotations[kube.AnnotationGatewaysInUse]; ok || len(ns.Annotations) != 1 {
		t.Errorf("annotations %v", ns.Annotations)
	}
}
