package externalroute

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
)

// maxMessages limits the number of messages.
const maxMessages = 20

// Served is the state of the rows of a policy.
type Served struct {
	Pods   int      // in its namespaces
	Failed []string // the nodes of these pods whose rows could not be written, sorted
}

// Status returns the status of a policy. Transition times are copied from old
// if nothing changed; otherwise they are zero.
func Status(p Policy, served Served, old v1.AdminPolicyBasedExternalRouteStatus) v1.AdminPolicyBasedExternalRouteStatus {
	status := v1.AdminPolicyBasedExternalRouteStatus{
		Conditions: []metav1.Condition{ready(p, served), valid(p), conflict(p), formerConflict(p)},
		Namespaces: int32(len(p.Namespaces)),
		Pods:       int32(served.Pods),
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.ObservedGeneration, c.Message = p.Generation, conditions.Cut(c.Message)
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
	status.Status, status.Messages = outcome(p, status.Conditions[0])
	if status.Status == old.Status && slices.Equal(status.Messages, old.Messages) {
		status.LastTransitionTime = old.LastTransitionTime
	}
	return status
}

// outcome summarizes the conditions in the terms used by existing scripts for
// this API. Waiting for namespaces and gateway pods is not a failure.
func outcome(p Policy, ready metav1.Condition) (v1.Outcome, []string) {
	result := v1.OutcomeSuccess
	if len(p.hops) == 0 || ready.Status != metav1.ConditionTrue && ready.Reason != v1.ReasonNoNamespace ||
		slices.ContainsFunc(p.problems, func(q problem) bool { return q.reason != v1.ReasonNoGatewayPod }) {
		result = v1.OutcomeFail
	}
	var messages []string
	if len(p.hops) > 0 && (ready.Status == metav1.ConditionTrue || ready.Reason == v1.ReasonNoNamespace) {
		var addrs []string
		for _, h := range p.hops {
			addrs = append(addrs, h.Addr.String())
		}
		messages = append(messages, "Configured external gateway IPs: "+strings.Join(addrs, ","))
	}
	if ready.Status != metav1.ConditionTrue {
		messages = append(messages, ready.Message)
	}
	for _, more := range [][]problem{p.problems, p.conflicts} {
		messages = append(messages, sorted(more)...)
	}
	if n := len(messages) - maxMessages; n > 0 {
		messages = append(messages[:maxMessages-1], fmt.Sprintf("%d more", n+1))
	}
	for i, text := range messages {
		messages[i] = conditions.Cut(text)
	}
	return result, messages
}

func ready(p Policy, served Served) metav1.Condition {
	c := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case p.selector != "":
		c.Reason, c.Message = v1.ReasonInvalidSelector, "from.namespaceSelector is not valid: "+p.selector
	case len(p.Namespaces) == 0:
		c.Reason, c.Message = v1.ReasonNoNamespace, "from.namespaceSelector selects no namespace"
	case len(p.hops) == 0:
		c.Reason, c.Message = v1.ReasonNoHop, "there is no hop that can be used"
	case len(served.Failed) > 0:
		c.Reason = v1.ReasonWriteFailed
		c.Message = "the routes of nodes " + strings.Join(served.Failed, ", ") + " could not be written; it is tried again"
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

func conflict(p Policy) metav1.Condition {
	if len(p.conflicts) == 0 {
		return metav1.Condition{Type: v1.ConditionConflict, Status: metav1.ConditionFalse,
			Reason: v1.ReasonNoConflict, Message: "no other policy decides about its hops"}
	}
	return metav1.Condition{Type: v1.ConditionConflict, Status: metav1.ConditionTrue,
		Reason: p.conflicts[0].reason, Message: messages(p.conflicts)}
}

// formerConflict returns the conflict condition under its former name.
func formerConflict(p Policy) metav1.Condition {
	c := conflict(p)
	c.Type = conditions.FormerConflict
	return c
}

// messages joins messages in a stable order.
func messages(problems []problem) string { return strings.Join(sorted(problems), "; ") }

// sorted returns messages without duplicates.
func sorted(problems []problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.message)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
