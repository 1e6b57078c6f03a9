package egressservice

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
)

// Reasons of conditions, in addition to those of a Refusal and of package conditions.
const (
	ReasonHostAssigned    = "HostAssigned"
	ReasonEveryNode       = "EveryNode"
	ReasonProgrammed      = "Programmed"
	ReasonNotAssigned     = "NotAssigned"
	ReasonWaitingForHost  = "WaitingForHost"
	ReasonNotAcknowledged = "NotAcknowledged"
	ReasonNetworkNotFound = "NetworkNotFound"
	ReasonNoConflict      = "NoConflict"
	ReasonOlderWins       = "OlderEgressService"
)

// Conditions returns the conditions of a Service whose policies match Rows,
// without timestamps and generation. The Service has no conditions besides these.
func Conditions(s Service, d Decision) []metav1.Condition {
	all := []metav1.Condition{assigned(s, d), programmed(s, d), conflict(s)}
	if len(s.RefusedIngress) > 0 {
		all = append(all, ingressRefused(s))
	}
	return all
}

func condition(kind string, is bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: conditions.Cut(message)}
}

// RejectionReason returns the reason why a Service has no host, or the zero Refusal if it has one.
func RejectionReason(s Service, d Decision) Refusal {
	if s.Refused != (Refusal{}) {
		return s.Refused
	}
	return d.Refused
}

func assigned(s Service, d Decision) metav1.Condition {
	switch host := Status(s, d); host {
	case "":
		why := RejectionReason(s, d)
		return condition(v1.ConditionAssigned, false, string(why.Reason), why.Message)
	case v1.HostAll:
		return condition(v1.ConditionAssigned, true, ReasonEveryNode, "every node serves its own pods")
	default:
		return condition(v1.ConditionAssigned, true, ReasonHostAssigned, "node "+host+" serves the egress traffic")
	}
}

func programmed(s Service, d Decision) metav1.Condition {
	host := Status(s, d)
	switch {
	case host == "":
		return condition(v1.ConditionProgrammed, false, ReasonNotAssigned, "no node serves it")
	case s.Ack.Problem != "" && (Acknowledged(s, d) || host == v1.HostAll):
		return condition(v1.ConditionProgrammed, false, ReasonNetworkNotFound, "node "+s.Ack.Host+": "+s.Ack.Problem)
	case host == v1.HostAll:
		return condition(v1.ConditionProgrammed, true, ReasonEveryNode, "every node programs its own rules")
	case d.NotAcknowledging && !Acknowledged(s, d):
		return condition(v1.ConditionProgrammed, false, ReasonNotAcknowledged, "node "+host+" does not acknowledge its rules, and no other can be the host")
	case !Acknowledged(s, d):
		return condition(v1.ConditionProgrammed, false, ReasonWaitingForHost, "node "+host+" has not acknowledged its rules yet")
	}
	return condition(v1.ConditionProgrammed, true, ReasonProgrammed, "rules and policies are in place")
}

// conflict tells all conflicts. Its reason is that of a claim if there is one: pods show which other EgressService decides,
// but nothing else shows a claim.
func conflict(s Service) metav1.Condition {
	var messages []string
	reason := ReasonOlderWins
	if len(s.Conflicts) > 0 {
		const most = 5
		names := strings.Join(s.Conflicts[:min(most, len(s.Conflicts))], ", ")
		if len(s.Conflicts) > most {
			names += fmt.Sprintf(" and %d more", len(s.Conflicts)-most)
		}
		messages = append(messages, "older EgressServices have some of its pods: "+names)
	}
	if len(s.Disputed) > 0 {
		messages = append(messages, "ingress addresses that were served before somebody claimed them, and still are: "+listRefused(s.Disputed))
		reason = conditions.ReasonAddressInUse
	}
	if len(messages) == 0 {
		return condition(v1.ConditionConflict, false, ReasonNoConflict, "no other EgressService has its pods")
	}
	return condition(v1.ConditionConflict, true, reason, strings.Join(messages, "; "))
}

// ingressRefused returns the condition that lists the unused addresses of the load balancer; its
// reason is that of the first address.
func ingressRefused(s Service) metav1.Condition {
	return condition(v1.ConditionIngressRefused, true, string(s.RefusedIngress[0].Reason),
		"ingress addresses that are not used: "+listRefused(s.RefusedIngress))
}
