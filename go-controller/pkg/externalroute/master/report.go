package master

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
)

// reconcileStatus writes the status of a policy.
func (c *Controller) reconcileStatus(ctx context.Context, name string) error {
	obj, err := c.policies.Get(name)
	if apierrors.IsNotFound(err) {
		c.patched.Forget(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get AdminPolicyBasedExternalRoute %s: %w", name, err)
	}
	known := c.patched.Known(name, obj).Status
	c.mu.Lock()
	policy, ok := c.plan.Policies[name]
	waits := c.reportPolicies[name]
	failed := maps.Clone(c.failed)
	c.mu.Unlock()
	if !ok || waits || policy.UID != obj.UID {
		return nil // enqueued again when it has been decided on and the nodes are written
	}
	status := externalroute.Status(policy, c.served(policy, failed), known)
	had, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("encode status of AdminPolicyBasedExternalRoute %s: %w", name, err)
	}
	has, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encode status of AdminPolicyBasedExternalRoute %s: %w", name, err)
	}
	if string(had) == string(has) {
		return nil
	}
	for i := range status.Conditions {
		if status.Conditions[i].LastTransitionTime.IsZero() {
			status.Conditions[i].LastTransitionTime = metav1.Now()
		}
	}
	if status.LastTransitionTime == nil {
		now := metav1.Now()
		status.LastTransitionTime = &now
	}
	return c.patchStatus(ctx, obj, status)
}

func (c *Controller) patchStatus(ctx context.Context, obj *v1.AdminPolicyBasedExternalRoute,
	status v1.AdminPolicyBasedExternalRouteStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.UID},
		"status": map[string]any{
			"conditions": status.Conditions, "hops": status.Hops, // null deletes
			"namespaces": status.Namespaces, "pods": status.Pods,
			"status": status.Status, "messages": status.Messages, "lastTransitionTime": status.LastTransitionTime,
		},
	})
	if err != nil {
		return fmt.Errorf("encode status of AdminPolicyBasedExternalRoute %s: %w", obj.Name, err)
	}
	result, err := c.deps.Routes.AdminPolicyBasedRouteV1().AdminPolicyBasedExternalRoutes().Patch(
		ctx, obj.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil // its deletion event is on the way
	}
	if err != nil {
		return fmt.Errorf("patch status of AdminPolicyBasedExternalRoute %s: %w", obj.Name, err)
	}
	c.patched.Record(obj.Name, obj, result)
	for _, cond := range status.Conditions {
		klog.V(2).InfoS("Status of policy", "policy", obj.Name, "condition", cond.Type, "status", cond.Status,
			"reason", cond.Reason, "message", cond.Message)
	}
	return nil
}

// eventRefused is the reason of Events about unused gateways.
const eventRefused = "GatewayRefused"

// emitRefused emits Events about newly refused gateways.
func (c *Controller) emitRefused(before, after map[string][]string) {
	for object, messages := range after {
		var obj runtime.Object
		if item, known, _ := c.pods.GetByKey(object); known { // reads memory and cannot fail
			obj, _ = item.(*corev1.Pod)
		} else if ns, err := c.namespaces.Get(object); err == nil {
			obj = ns
		}
		for _, message := range messages {
			if obj == nil || slices.Contains(before[object], message) {
				continue
			}
			klog.V(2).InfoS("Gateway refused", "object", object, "message", message)
			c.deps.Recorder.Event(obj, corev1.EventTypeWarning, eventRefused, message)
		}
	}
}

// served returns the state of the rows of a policy; failed are the nodes whose
// rows could not be written.
func (c *Controller) served(p externalroute.Policy, failed map[string]bool) externalroute.Served {
	var served externalroute.Served
	for _, ns := range p.Namespaces {
		served.Pods += c.countPods(ns)
	}
	if len(failed) > 0 {
		for _, node := range c.nodesOf(p.Namespaces) {
			if failed[node] {
				served.Failed = append(served.Failed, node)
			}
		}
	}
	return served
}

// countPods returns the number of pods of a namespace that have an address.
func (c *Controller) countPods(namespace string) int {
	n := 0
	for _, p := range c.podsIn(namespace) {
		// The kubelet has reported the addresses of most pods, and reading them is fast.
		if kube.NeedsNetwork(p) && (len(kube.PodAddresses(p)) > 0 || len(c.deps.Given(kube.PodKey(p), kube.PodUID(p))) > 0) {
			n++
		}
	}
	return n
}

// reconcileNamespace publishes the gateways that a namespace uses to the nodes, after its
// rows are written: the nodes forget the connections of removed gateways.
func (c *Controller) reconcileNamespace(ctx context.Context, name string) error {
	ns, err := c.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get namespace %s: %w", name, err)
	}
	c.mu.Lock()
	hops, waits := c.plan.Hops[name], c.reportNamespaces[name]
	c.mu.Unlock()
	if waits {
		return nil // enqueued again when the nodes are written
	}
	var value *string
	if len(hops) > 0 {
		addrs := make([]netip.Addr, 0, len(hops))
		for _, h := range hops {
			addrs = append(addrs, h.Addr)
		}
		value = kube.Value(kube.FormatAddrs(addrs))
	}
	err = kube.PatchNamespace(ctx, c.deps.Kube, ns, kube.Metadata{
		Annotations: map[string]*string{kube.AnnotationGatewaysInUse: value}, Unseen: &c.unseen,
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
