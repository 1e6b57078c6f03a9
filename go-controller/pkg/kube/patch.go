package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Metadata is a change of annotations and labels: a value sets a key, nil deletes it,
// and other keys stay as they are.
type Metadata struct {
	Annotations map[string]*string
	Labels      map[string]*string
	// Unseen records the object when a request is sent; nil: it is not recorded.
	Unseen *Unseen
}

// Value returns a pointer to s, for the maps of Metadata.
func Value(s string) *string { return &s }

// patch returns the merge patch that applies m to have, or nil if nothing differs.
func (m Metadata) patch(have metav1.ObjectMeta) ([]byte, error) {
	meta := map[string]any{}
	if d := differing(have.Annotations, m.Annotations); len(d) > 0 {
		meta["annotations"] = d
	}
	if d := differing(have.Labels, m.Labels); len(d) > 0 {
		meta["labels"] = d
	}
	if len(meta) == 0 {
		return nil, nil
	}
	// An object recreated under the same name must not get a change meant for
	// the old one: the API server rejects a patch with a different uid.
	meta["uid"] = have.UID
	m.Unseen.wrote(have.UID) // before the write, so that the handler of its event finds the record
	return json.Marshal(map[string]any{"metadata": meta})
}

func differing(have map[string]string, want map[string]*string) map[string]*string {
	d := map[string]*string{}
	for k, w := range want {
		h, ok := have[k]
		if w == nil && ok || w != nil && (!ok || *w != h) {
			d[k] = w
		}
	}
	return d
}

// JSONPatch is a JSON patch (RFC 6902): the API server performs all of its operations
// in order, or none if a test fails.
type JSONPatch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Test adds the condition that path has a value; nil requires that path does not exist.
func (p JSONPatch) Test(path string, value any) JSONPatch {
	return append(p, operation{"test", path, value})
}

// Add adds the operation that sets the value at path, whether or not it exists.
func (p JSONPatch) Add(path string, value any) JSONPatch {
	return append(p, operation{"add", path, value})
}

// Replace adds the operation that replaces the value at path, which must exist.
func (p JSONPatch) Replace(path string, value any) JSONPatch {
	return append(p, operation{"replace", path, value})
}

// Remove adds the operation that removes the value at path, which must exist.
func (p JSONPatch) Remove(path string) JSONPatch { return append(p, operation{"remove", path, nil}) }

// PatchNode applies m to the annotations and labels of a node. node is the
// object as last read; if it already matches, no request is sent.
func PatchNode(ctx context.Context, cs kubernetes.Interface, node *corev1.Node, m Metadata) error {
	patch, err := m.patch(node.ObjectMeta)
	if err != nil || patch == nil {
		return err
	}
	if _, err := cs.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch metadata of node %s: %w", node.Name, err)
	}
	return nil
}

// PatchPod is like PatchNode for a pod.
func PatchPod(ctx context.Context, cs kubernetes.Interface, pod *corev1.Pod, m Metadata) error {
	patch, err := m.patch(pod.ObjectMeta)
	if err != nil || patch == nil {
		return err
	}
	if _, err := cs.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch metadata of pod %s: %w", PodKey(pod), err)
	}
	return nil
}

// PatchNamespace is like PatchNode for a namespace.
func PatchNamespace(ctx context.Context, cs kubernetes.Interface, ns *corev1.Namespace, m Metadata) error {
	patch, err := m.patch(ns.ObjectMeta)
	if err != nil || patch == nil {
		return err
	}
	if _, err := cs.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch metadata of namespace %s: %w", ns.Name, err)
	}
	return nil
}

// SetNodeCondition sets a condition of a node unless status, reason and message
// already match. The last transition time changes only with the status.
func SetNodeCondition(ctx context.Context, cs kubernetes.Interface, node *corev1.Node, c corev1.NodeCondition) error {
	c.LastHeartbeatTime = metav1.Now()
	c.LastTransitionTime = c.LastHeartbeatTime
	for _, have := range node.Status.Conditions {
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message {
			return nil
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
	}
	patch, err := conditionsPatch(node, c)
	if err != nil {
		return fmt.Errorf("encode condition %s of node %s: %w", c.Type, node.Name, err)
	}
	if _, err := cs.CoreV1().Nodes().PatchStatus(ctx, node.Name, patch); err != nil {
		return fmt.Errorf("set condition %s of node %s: %w", c.Type, node.Name, err)
	}
	return nil
}

// RemoveNodeCondition removes a condition of a node if its reason is one of those given:
// with another reason it belongs to somebody else.
func RemoveNodeCondition(ctx context.Context, cs kubernetes.Interface, node *corev1.Node, kind corev1.NodeConditionType, reasons ...string) error {
	if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind && slices.Contains(reasons, c.Reason) }) {
		return nil
	}
	patch, err := conditionsPatch(node, map[string]any{"$patch": "delete", "type": kind})
	if err != nil {
		return fmt.Errorf("encode removal of condition %s of node %s: %w", kind, node.Name, err)
	}
	if _, err := cs.CoreV1().Nodes().PatchStatus(ctx, node.Name, patch); err != nil {
		return fmt.Errorf("remove condition %s of node %s: %w", kind, node.Name, err)
	}
	return nil
}

// conditionsPatch returns the strategic merge patch with one change of the conditions of a node. It has a uid for the
// same reason as patches of metadata.
func conditionsPatch(node *corev1.Node, change any) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID}, "status": map[string]any{"conditions": []any{change}},
	})
}
