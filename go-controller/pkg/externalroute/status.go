package externalroute

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
)

// maxMessage bounds the messages of conditions, which the API limits to 32768
// characters.
const maxMessage = 4096

// Status returns the status of a policy; pods is how many pods its namespaces
// have. Times of transitions are those of old where nothing changed, else zero.
func Status(p Policy, pods int, old v1.AdminPolicyBasedExternalRouteStatus) v1.AdminPolicyBasedExternalRouteStatus {
	status := v1.AdminPolicyBasedExternalRouteStatus{
		Conditions: []metav1.Condition{ready(p), valid(p), conflicting(p)},
		Namespaces: int32(len(p.Namespaces)),
		Pods:       int32(pods),
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.ObservedGeneration = p.Generation
		for _, o := range old.Conditions {
			if o.Type == c.Type && o.Status == c.Status {
				c.LastTransitionTime = o.LastTransitionTime
			}
		}
	}
	for _, h := range p.hops {
		status.Hops = append(status.Hops, v1.HopStatus{
			IP: h.Addr.String(), BFDEnabled: h.BFD, SkipHostSNAT: h.SkipSNAT, Pod: h.pod,
		})
	}
	return status
}

func ready(p Policy) metav1.Condition {
	c := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case p.selector != "":
		c.Reason, c.Message = v1.ReasonInvalidSelector, "from.namespaceSelector is not valid: "+p.selector
	case len(p.Namespaces) == 0:
		c.Reason, c.Message = v1.ReasonNoNamespace, "from.namespaceSelector selects no namespace"
	case len(p.hops) == 0:
		c.Reason, c.Message = v1.ReasonNoHop, "there is no hop that can be used"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1.ReasonApplied
		c.Message = fmt.Sprintf("the pods of the selected namespaces use %d hops", len(p.hops))
	}
	return c
}

func valid(p Policy) metav1.Condition {
	if len(p.problems) == 0 {
		return metav1.Condition{Type: v1.ConditionHopsValid, Status: metav1.ConditionTrue,
			Reason: v1.ReasonAllValid, Message: "every hop can be used"}
	}
	return metav1.Condition{Type: v1.ConditionHopsValid, Status: metav1.ConditionFalse,
		Reason: p.problems[0].reason, Message: messages(p.problems)}
}

func conflicting(p Policy) metav1.Condition {
	if len(p.conflicts) == 0 {
		return metav1.Condition{Type: v1.ConditionConflicting, Status: metav1.ConditionFalse,
			Reason: v1.ReasonNoConflict, Message: "no other policy decides about its hops"}
	}
	return metav1.Condition{Type: v1.ConditionConflicting, Status: metav1.ConditionTrue,
		Reason: p.conflicts[0].reason, Message: messages(p.conflicts)}
}

// messages joins what there is to say, in an order that does not change by itself.
func messages(problems []problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, p.message)
	}
	slices.Sort(out)
	text := strings.Join(slices.Compact(out), "; ")
	if len(text) > maxMessage {
		text = text[:maxMessage-1] + "…"
	}
	return text
}
