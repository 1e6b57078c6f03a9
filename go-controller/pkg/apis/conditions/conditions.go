package conditions

import (
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types.
const (
	// Assigned is True while every address, or the whole object, is assigned to a node.
	Assigned = "Assigned"
	// Programmed is True while what was assigned is in effect.
	Programmed = "Programmed"
	// Ready is True while a policy that needs no node of its own is in effect.
	Ready = "Ready"
	// Conflict is True while another object of the same kind already has, or decides about, part of what this one
	// requests.
	Conflict = "Conflict"
	// HopsValid is False while some hop of a policy cannot be used.
	HopsValid = "HopsValid"
	// IngressRefused is True while some address of a load balancer is not used, and absent otherwise.
	IngressRefused = "IngressRefused"

	// FormerConflict is the former name of Conflict for AdminPolicyBasedExternalRoutes. It is served for one more
	// version.
	FormerConflict = "Conflicting"
)

// ReasonAddressInUse is the reason of Conflict, of every kind that has addresses, while somebody who is not of that kind
// claims one.
const ReasonAddressInUse = "AddressInUse"

// The kinds.
const (
	EgressIP                      = "EgressIP"
	EgressService                 = "EgressService"
	AdminPolicyBasedExternalRoute = "AdminPolicyBasedExternalRoute"
)

// Kinds returns the kinds, in the order of the table.
func Kinds() []string { return []string{EgressService, EgressIP, AdminPolicyBasedExternalRoute} }

// Entry is a condition that a kind can have.
type Entry struct {
	Kind, Type string
	Status     metav1.ConditionStatus
	Reason     string
	Meaning    string
	Remedy     string // empty if nothing is wrong
}

// Formerly returns the type that replaces the given one, or the type itself.
func Formerly(kind, conditionType string) string {
	if kind == AdminPolicyBasedExternalRoute && conditionType == FormerConflict {
		return Conflict
	}
	return conditionType
}

// Known reports whether a kind can have a condition.
func Known(kind string, c metav1.Condition) bool {
	return slices.ContainsFunc(table, func(e Entry) bool {
		return e.Kind == kind && e.Type == Formerly(kind, c.Type) && e.Status == c.Status && e.Reason == c.Reason
	})
}

// All returns the table.
func All() []Entry { return slices.Clone(table) }

// Markdown writes the table as a documentation page.
func Markdown(w io.Writer) error {
	var err error
	write := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format, args...)
		}
	}
	write("%s", head)
	for _, kind := range Kinds() {
		write("\n## %s\n\n| type | status | reason | meaning | remedy |\n| --- | --- | --- | --- | --- |\n", kind)
		for _, e := range table {
			if e.Kind == kind {
				remedy := e.Remedy
				if remedy == "" {
					remedy = "-"
				}
				write("| `%s` | %s | `%s` | %s | %s |\n", e.Type, e.Status, e.Reason, e.Meaning, remedy)
			}
		}
	}
	if err != nil {
		return err
	}
	return eventsMarkdown(w)
}

const head = `<!-- Generated from go-controller/pkg/apis/conditions by "make generate". -->

# Conditions

What the statuses of [EgressServices](egress-service.md), [EgressIPs](egress-ip.md) and
[AdminPolicyBasedExternalRoutes](external-gateways.md) say, and what to do about it. A type means the same in each of them:

| type | True means |
| --- | --- |
| ` + "`Assigned`" + ` | every address, or the whole EgressService, has a node |
| ` + "`Programmed`" + ` | what was assigned is in force |
| ` + "`Ready`" + ` | the policy, which needs no node of its own, is in force |
| ` + "`Conflict`" + ` | an older object of the kind has, or decides about, some of what this one asks for |
| ` + "`HopsValid`" + ` | every hop of the policy can be used |
| ` + "`IngressRefused`" + ` | some address of the load balancer is not used; the condition is absent otherwise |

The message of a condition names addresses, nodes and objects. ` + "`observedGeneration`" + ` is the generation of the spec that it is about.
If ` + "`Conflict`" + ` has several causes, the message names all of them, and the reason is ` + "`AddressInUse`" + ` if that is one of them.

AdminPolicyBasedExternalRoutes also have the condition ` + "`Conflicting`" + `, the former name of ` + "`Conflict`" + `, with the same content. It
is deprecated and goes with the next version: read ` + "`Conflict`" + `.
`
