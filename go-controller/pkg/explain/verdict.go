package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// APIVersion is the version of the schema of answers. Fields may be added to it; existing
// fields keep their names and meanings.
const APIVersion = "egress.ovnkube/v1"

// The kinds of answers.
const (
	KindPod      = "PodExplanation"
	KindEgressIP = "EgressIPExplanation"
	KindService  = "ServiceExplanation"
	KindAddress  = "AddressExplanation"
	KindNode     = "NodeExplanation"
	KindStatus   = "EgressStatus"
	KindObjects  = "EgressObjects"
	KindWhatIf   = "WhatIf"
)

// Outcome is what happens to a pod's traffic to destinations outside the cluster.
type Outcome string

// The outcomes.
const (
	// OutcomeNode: it leaves with the address of the pod's node.
	OutcomeNode Outcome = "NodeAddress"
	// OutcomeEgressIP: it leaves with an address of an EgressIP.
	OutcomeEgressIP Outcome = "EgressIP"
	// OutcomeEgressService: it leaves with the address of a load balancer, or by the
	// network of an EgressService.
	OutcomeEgressService Outcome = "EgressService"
	// OutcomeGateways: it leaves through external gateways.
	OutcomeGateways Outcome = "ExternalGateways"
	// OutcomeHeld: it is held back until what is planned is in force.
	OutcomeHeld Outcome = "Held"
	// OutcomeDropped: it is dropped, as onUnavailable Drop asks for.
	OutcomeDropped Outcome = "Dropped"
	// OutcomeUnknown: the API does not show with which address it leaves until the
	// plan is in force.
	OutcomeUnknown Outcome = "Unknown"
	// OutcomeInside: egress features do not apply to the destination.
	OutcomeInside Outcome = "NotEgress"
	// OutcomeLost: the pod is on a node that is lost.
	OutcomeLost Outcome = "NodeLost"
	// OutcomeNone: the pod does not send in this family on the pod network.
	OutcomeNone Outcome = "NoNetwork"
)

// Header is the beginning of every answer.
type Header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// AsOf is when the objects were read.
	AsOf metav1.Time `json:"asOf"`
	// MasterRenewed is when the leading master last renewed its lease; absent if
	// unknown.
	MasterRenewed *metav1.Time `json:"masterRenewed,omitempty"`
	// ReachabilityAsOf is when the leading master published its probe results; absent
	// if unknown.
	ReachabilityAsOf *metav1.Time `json:"reachabilityAsOf,omitempty"`
	// InPlace reports whether everything is as planned, as far as the API shows.
	InPlace bool `json:"inPlace"`
	// Notes are the assumptions of the answer.
	Notes []string `json:"notes,omitempty"`
}

// Problem is a deviation from the plan.
type Problem struct {
	// Object is the object concerned: "EgressIP/prod", "EgressService/shop/checkout".
	Object string `json:"object"`
	// Reason is the reason of the condition, or one of the reasons of this package.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Since is when it began; absent if the object does not show it.
	Since *metav1.Time `json:"since,omitempty"`
}

// Pod is the answer about a pod.
type Pod struct {
	Header `json:",inline"`
	Pod    string `json:"pod"`
	Node   string `json:"node,omitempty"`
	// To is the destination of the question.
	To       string   `json:"to,omitempty"`
	Families []Family `json:"families"`
	// Problems are the problems that do not belong to a family.
	Problems []Problem `json:"problems,omitempty"`
	// RangesUnknown reports whether the address ranges that the cluster uses for itself could not
	// be read: rows with these ranges in their matches may differ from those of the cluster.
	RangesUnknown bool `json:"-"`
}

// Family is the outcome for a pod's traffic in one IP family.
type Family struct {
	Family  string  `json:"family"`
	Address string  `json:"address,omitempty"` // of the pod
	Outcome Outcome `json:"outcome"`
	// By is the deciding object: "EgressIP/prod"; absent if there is none.
	By string `json:"by,omitempty"`
	// Why is a sentence.
	Why string `json:"why"`
	// Sources are the addresses that the other side may see; if there are several, each
	// connection uses one.
	Sources []Source `json:"sources,omitempty"`
	// Gateways are the next hops outside the cluster.
	Gateways []Gateway `json:"gateways,omitempty"`
	// Selected are all objects that select the pod in this family.
	Selected []Selected `json:"selected,omitempty"`
	// ImplementedBy are the rows and rules that implement the outcome once all is in force.
	ImplementedBy []Implementation `json:"implementedBy,omitempty"`
	Problems      []Problem        `json:"problems,omitempty"`
}

// Implementation is a row of the northbound database, or a part of a node's kernel state.
type Implementation struct {
	// Node is the node of the kernel state; absent for the northbound database.
	Node string `json:"node,omitempty"`
	// What is the row or the rule as text for people.
	What string `json:"what"`
	// Row is the row; zero for kernel state.
	Row nb.Row `json:"-"`
}

// Source is an address with which a pod's traffic leaves.
type Source struct {
	// Address is absent if the routing of the node determines it.
	Address string `json:"address,omitempty"`
	// Node is the node from which it leaves the cluster.
	Node string `json:"node,omitempty"`
	// Network is the network of the node that contains the address, or the routing table.
	Network string `json:"network,omitempty"`
	// Secondary reports whether Network is a secondary network.
	Secondary bool `json:"secondary,omitempty"`
}

// Gateway is an external gateway.
type Gateway struct {
	Address string `json:"address"`
	BFD     bool   `json:"bfd,omitempty"`
	// Pod is the gateway pod of a dynamic hop.
	Pod string `json:"pod,omitempty"`
}

// Selected is an object that selects a pod.
type Selected struct {
	Object string `json:"object"`
	// Wins reports whether it decides.
	Wins bool `json:"wins"`
	// Why is why it decides, or what decides instead.
	Why string `json:"why"`
	// Conditions are the conditions in its status.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is a condition of an object, shortened.
type Condition struct {
	Type   string      `json:"type"`
	Status string      `json:"status"`
	Reason string      `json:"reason,omitempty"`
	Since  metav1.Time `json:"since"`
}

// The reasons of problems that are not reasons of conditions.
const (
	// ReasonNoStatus: the object has no conditions yet.
	ReasonNoStatus = "NoStatus"
	// ReasonNotPlanned: the status differs from the current decision of the planner.
	ReasonNotPlanned = "StatusDiffers"
	// ReasonWaiting: the plan is not in force yet.
	ReasonWaiting = "Waiting"
	// ReasonStale: the status refers to an earlier spec.
	ReasonStale = "StatusOutdated"
	// ReasonNodeNotReady: the node, or the pod's node, is not Ready.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonNodeUnreachable: the node is Ready, but does not answer the master's probes.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonNoAddress: the pod has no address yet.
	ReasonNoAddress = "NoAddress"
	// ReasonGatewayRefused: a gateway from an annotation is not used.
	ReasonGatewayRefused = "GatewayRefused"
	// ReasonLabel: the label of the host of an EgressService is on the wrong node or missing.
	ReasonLabel = "LabelDiffers"
	// ReasonMasterSilent: no master renews its lease.
	ReasonMasterSilent = "MasterSilent"
)

// leaseTimeout is how long a lease may go without renewal before the master counts as absent. Normally
// another master takes the lease after a few seconds.
const leaseTimeout = time.Minute

// header returns the header of an answer.
func (c *Cluster) header(kind string) (Header, []Problem) {
	h := Header{APIVersion: APIVersion, Kind: kind, AsOf: metav1.NewTime(c.snap.Taken), InPlace: true, Notes: c.snap.Notes}
	if r := c.snap.Reachability; r != nil {
		at := metav1.NewTime(r.AsOf)
		h.ReachabilityAsOf = &at
	}
	if c.snap.Renewed.IsZero() {
		return h, nil
	}
	renewed := metav1.NewTime(c.snap.Renewed)
	h.MasterRenewed = &renewed
	if !c.masterAbsent() {
		return h, nil
	}
	return h, []Problem{{Object: "master", Reason: ReasonMasterSilent, Since: &renewed,
		Message: "no master has renewed its lease since: statuses are as old as that, and nothing moves"}}
}

// masterAbsent reports whether the master is absent, as far as is known.
func (c *Cluster) masterAbsent() bool {
	return !c.snap.Renewed.IsZero() && c.snap.Taken.Sub(c.snap.Renewed) >= leaseTimeout
}

// conditionsOf shortens conditions, and returns the problems that they report.
func conditionsOf(object string, generation int64, all []metav1.Condition) (short []Condition, problems []Problem) {
	if len(all) == 0 {
		problems = append(problems, Problem{Object: object, Reason: ReasonNoStatus, Message: "no master has processed it yet"})
	}
	for _, c := range all {
		if c.Type == conditions.FormerConflict {
			continue
		}
		short = append(short, Condition{c.Type, string(c.Status), c.Reason, c.LastTransitionTime})
		since := c.LastTransitionTime
		good := metav1.ConditionTrue
		switch c.Type {
		case conditions.Conflict: // conflicts between objects are reported with the pods that they affect
			if good = c.Status; c.Reason == conditions.ReasonAddressInUse {
				good = metav1.ConditionFalse
			}
		case conditions.IngressRefused:
			good = metav1.ConditionFalse
		}
		switch {
		case c.Status != good:
			problems = append(problems, Problem{object, c.Reason, c.Type + " is " + string(c.Status) + ": " + c.Message, &since})
		case c.ObservedGeneration != 0 && c.ObservedGeneration < generation:
			problems = append(problems, Problem{Object: object, Reason: ReasonStale,
				Message: "condition " + c.Type + " is about an earlier spec"})
		}
	}
	return short, problems
}
