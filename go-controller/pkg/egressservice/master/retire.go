package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// disabledMessage is the message of the conditions of all EgressServices while the feature is disabled.
const disabledMessage = "EgressServices are not enabled (enable-egress-service)"

// Retire removes the hosts and their acknowledgements from all statuses, and the labels from all nodes: nobody keeps them
// up to date while the feature is disabled, and once it is enabled again an acknowledgement from before would have
// policies lead to a host that has no rules.
func Retire(ctx context.Context, cs kubernetes.Interface, egress versioned.Interface) error {
	list, err := egress.EgressServiceV1().EgressServices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // the kind need not be installed
		return fmt.Errorf("list EgressServices: %w", err)
	}
	var errs []error
	if err == nil {
		for i := range list.Items {
			errs = append(errs, retireStatus(ctx, egress, &list.Items[i]))
		}
	}
	nodes, err := cs.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list nodes: %w", err))...)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		remove := map[string]*string{}
		for key := range n.Labels {
			if strings.HasPrefix(key, kube.LabelEgressServicePrefix) {
				remove[key] = nil
			}
		}
		if err := kube.PatchNode(ctx, cs, n, kube.Metadata{Labels: remove}); !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func retireStatus(ctx context.Context, egress versioned.Interface, eg *v1.EgressService) error {
	want := kube.DisabledConditions(eg.Status.Conditions, eg.Generation, disabledMessage, v1.ConditionAssigned, v1.ConditionProgrammed)
	if eg.Status.Host == "" && eg.Status.Programmed == nil && equality.Semantic.DeepEqual(want, eg.Status.Conditions) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": eg.UID}, "status": map[string]any{
		"host": nil, "programmed": nil, "conditions": want,
	}})
	if err != nil {
		return fmt.Errorf("encode status of EgressService %s/%s: %w", eg.Namespace, eg.Name, err)
	}
	_, err = egress.EgressServiceV1().EgressServices(eg.Namespace).Patch(ctx, eg.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch status of EgressService %s/%s: %w", eg.Namespace, eg.Name, err)
	}
	return nil
}
