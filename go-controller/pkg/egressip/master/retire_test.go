package master

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressipfake "github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned/fake"
)

// TestRetire: while the feature is disabled, no address is assigned, and no pod that a node acknowledged before counts
// once the feature is enabled again; that a node held an address stays known.
func TestRetire(t *testing.T) {
	ctx := t.Context()
	e := &v1.EgressIP{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "1", Generation: 3}}
	e.Status = v1.EgressIPStatus{
		Items: []v1.EgressIPStatusItem{{EgressIP: "172.19.0.33", Node: "n1"}},
		Programmed: []v1.ProgrammedStatus{
			{Node: "n1", EgressIPs: []string{"172.19.0.33"}, Digest: "abc"},
			{Node: "n2", Awaiting: []string{"172.19.0.33"}},
		},
		Conditions: []metav1.Condition{
			{Type: v1.ConditionAssigned, Status: metav1.ConditionTrue, Reason: "Assigned"},
			{Type: v1.ConditionProgrammed, Status: metav1.ConditionTrue, Reason: "Programmed"},
			{Type: v1.ConditionConflict, Status: metav1.ConditionFalse, Reason: "NoConflict"},
		},
	}
	egress := egressipfake.NewSimpleClientset(e)
	for range 2 {
		if err := Retire(ctx, egress); err != nil {
			t.Fatal(err)
		}
	}
	patches := 0
	for _, a := range egress.Actions() {
		if a.GetVerb() == "patch" {
			patches++
		}
	}
	if patches != 1 {
		t.Errorf("%d patches, want 1", patches)
	}
	now, err := egress.EgressIPV1().EgressIPs().Get(ctx, "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := now.Status
	if len(s.Items) > 0 || len(s.Programmed) != 1 || len(s.Conditions) != 2 {
		t.Fatalf("status %+v", s)
	}
	if p := s.Programmed[0]; p.Node != "n1" || p.Digest != "" || !slices.Equal(p.EgressIPs, []string{"172.19.0.33"}) {
		t.Errorf("entry %+v", p)
	}
	for _, kind := range []string{v1.ConditionAssigned, v1.ConditionProgrammed} {
		c := meta.FindStatusCondition(s.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != 3 || !conditions.Known(conditions.EgressIP, *c) {
			t.Errorf("%s: %+v", kind, c)
		}
	}
}
