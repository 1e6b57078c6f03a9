package egressip

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// Selector tells which pods an EgressIP chooses.
type Selector struct {
	Key        string // the EgressIP's name
	created    metav1.Time
	namespaces labels.Selector
	pods       labels.Selector
}

// NewSelector parses the selectors of an EgressIP. The error names the field.
func NewSelector(e *v1.EgressIP) (Selector, error) {
	s := Selector{Key: e.Name, created: e.CreationTimestamp, namespaces: labels.Nothing(), pods: labels.Nothing()}
	namespaces, err := metav1.LabelSelectorAsSelector(&e.Spec.NamespaceSelector)
	if err != nil {
		return s, fmt.Errorf("namespaceSelector is not valid: %w", err)
	}
	pods, err := metav1.LabelSelectorAsSelector(&e.Spec.PodSelector)
	if err != nil {
		return s, fmt.Errorf("podSelector is not valid: %w", err)
	}
	s.namespaces, s.pods = namespaces, pods
	return s, nil
}

// Selects tells whether a pod with these labels, its own and its namespace's, is
// chosen.
func (s Selector) Selects(namespace, pod map[string]string) bool {
	return s.namespaces.Matches(labels.Set(namespace)) && s.pods.Matches(labels.Set(pod))
}

// SortSelectors puts the one with the better right first: the older, then the
// lower name.
func SortSelectors(all []Selector) {
	slices.SortFunc(all, func(a, b Selector) int {
		return cmp.Or(a.created.Time.Compare(b.created.Time), cmp.Compare(a.Key, b.Key))
	})
}

// Of returns the keys of the EgressIPs that choose a pod, in the order of all,
// which is sorted: the first has it.
func Of(all []Selector, namespace, pod map[string]string) []string {
	var keys []string
	for _, s := range all {
		if s.Selects(namespace, pod) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}
