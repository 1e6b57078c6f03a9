package kube

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reasonDisabled is the reason of conditions of objects whose feature is disabled.
const reasonDisabled = "Disabled"

// DisabledConditions returns the conditions of an object whose feature is disabled: those of the given types are False, and there
// are no others. Times of transition are those of the conditions that it had, if these were False.
func DisabledConditions(had []metav1.Condition, generation int64, message string, types ...string) []metav1.Condition {
	is := slices.DeleteFunc(slices.Clone(had), func(c metav1.Condition) bool { return !slices.Contains(types, c.Type) })
	for _, t := range types {
		meta.SetStatusCondition(&is, metav1.Condition{Type: t, Status: metav1.ConditionFalse, Reason: reasonDisabled, Message: message, ObservedGeneration: generation})
	}
	return is
}
