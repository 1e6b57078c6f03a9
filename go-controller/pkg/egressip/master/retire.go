package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/egressip/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// disabledMessage is the message of the conditions of all EgressIPs while the feature is disabled.
const disabledMessage = "EgressIPs are not enabled (enable-egress-ip)"

// Retire removes the assignments and what nodes have acknowledged from all statuses: nobody keeps them up to date while the
// feature is disabled, and once it is enabled again an acknowledgement from before would have policies lead to a node that
// has no rules. The addresses that nodes hold stay, since a node that does not run may still answer for them.
func Retire(ctx context.Context, egress versioned.Interface) error {
	list, err := egress.EgressIPV1().EgressIPs().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the kind need not be installed
	}
	if err != nil {
		return fmt.Errorf("list EgressIPs: %w", err)
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, retireStatus(ctx, egress, &list.Items[i]))
	}
	return errors.Join(errs...)
}

func retireStatus(ctx context.Context, egress versioned.Interface, e *v1.EgressIP) error {
	want := v1.EgressIPStatus{
		Items:      []v1.EgressIPStatusItem{},
		Conditions: kube.DisabledConditions(e.Status.Conditions, e.Generation, disabledMessage, v1.ConditionAssigned, v1.ConditionProgrammed),
	}
	for _, entry := range e.Status.Programmed {
		if len(entry.EgressIPs) > 0 {
			want.Programmed = append(want.Programmed, v1.ProgrammedStatus{Node: entry.Node, EgressIPs: entry.EgressIPs})
		}
	}
	if equality.Semantic.DeepEqual(want, e.Status) {
		return nil
	}
	// Nodes that still run the feature write their entries, too.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": e.UID, "resourceVersion": e.ResourceVersion}, "status": map[string]any{
		"items": want.Items, "programmed": want.Programmed, "conditions": want.Conditions,
	}})
	if err != nil {
		return fmt.Errorf("encode status of EgressIP %s: %w", e.Name, err)
	}
	_, err = egress.EgressIPV1().EgressIPs().Patch(ctx, e.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch status of EgressIP %s: %w", e.Name, err)
	}
	return nil
}
