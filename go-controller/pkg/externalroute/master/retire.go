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
	"k8s.io/client-go/kubernetes"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/generated/adminpolicybasedroute/clientset/versioned"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// disabledMessage is the message of the conditions of all policies while the feature is disabled.
const disabledMessage = "external gateways are not enabled (enable-multi-external-gateway)"

// Retire removes the gateways in use from the statuses of all policies and the annotations of all namespaces, since
// none is used while the feature is disabled.
func Retire(ctx context.Context, cs kubernetes.Interface, routes versioned.Interface) error {
	list, err := routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // the kind need not be installed
		return fmt.Errorf("list AdminPolicyBasedExternalRoutes: %w", err)
	}
	var errs []error
	if err == nil {
		for i := range list.Items {
			errs = append(errs, retireStatus(ctx, routes, &list.Items[i]))
		}
	}
	namespaces, err := cs.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list namespaces: %w", err))...)
	}
	for i := range namespaces.Items {
		err := kube.PatchNamespace(ctx, cs, &namespaces.Items[i], kube.Metadata{Annotations: map[string]*string{kube.AnnotationGatewaysInUse: nil}})
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func retireStatus(ctx context.Context, routes versioned.Interface, p *v1.AdminPolicyBasedExternalRoute) error {
	want := v1.AdminPolicyBasedExternalRouteStatus{
		Conditions: kube.DisabledConditions(p.Status.Conditions, p.Generation, disabledMessage, v1.ConditionReady),
		Status:     v1.OutcomeFail, Messages: []string{disabledMessage}, LastTransitionTime: p.Status.LastTransitionTime,
	}
	if equality.Semantic.DeepEqual(want, p.Status) {
		return nil
	}
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{
		"conditions": want.Conditions, "hops": nil, "namespaces": nil, "pods": nil,
		"status": want.Status, "messages": want.Messages, "lastTransitionTime": &now,
	}})
	if err != nil {
		return fmt.Errorf("encode status of AdminPolicyBasedExternalRoute %s: %w", p.Name, err)
	}
	_, err = routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch status of AdminPolicyBasedExternalRoute %s: %w", p.Name, err)
	}
	return nil
}
