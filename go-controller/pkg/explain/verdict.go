package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// APIVersion is the version of the schema of answers. Fields may be added to it; what
// there is keeps its name and meaning.
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

// Outcome is what becomes of what a pod sends out of the cluster.
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
	// OutcomeUnknown: the API does not tell with which address it leaves until what
	// is planned is in force.
	OutcomeUnknown Outcome = "Unknown"
	// OutcomeInside: the destination is one that no egress feature is about.
	OutcomeInside Outcome = "NotEgress"
	// OutcomeLost: the pod is on a node that is lost.
	OutcomeLost Outcome = "NodeLost"
	// OutcomeNone: the pod does not send in this family on the pod network.
	OutcomeNone Outcome = "NoNetwork"
)

// Header is the begin of every answer.
type Header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// AsOf is when the objects were read.
	AsOf metav1.Time `json:"asOf"`
	// MasterRenewed is when the leading master last renewed its lease; absent where
	// that is not known.
	MasterRenewed *metav1.Time `json:"masterRenewed,omitempty"`
	// ReachabilityAsOf is when the leading master published what its probes say; absent
	// where that is not known.
	ReachabilityAsOf *metav1.Time `json:"reachabilityAsOf,omitempty"`
	// InPlace reports whether everything is as planned, as far as the API shows.
	InPlace bool `json:"inPlace"`
	// Notes are what the answer takes for granted.
	Notes []string `json:"notes,omitempty"`
}

// Problem is something that is not as planned.
type Problem struct {
	// Object is what it is about: "EgressIP/prod", "EgressService/shop/checkout".
	Object string `json:"object"`
	// Reason is that of the condition, or one of the reasons of this package.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Since is when it began; absent where the object does not tell.
	Since *metav1.Time `json:"since,omitempty"`
}

// Pod is the answer about a pod.
type Pod struct {
	Header `json:",inline"`
	Pod    string `json:"pod"`
	Node   string `json:"node,omitempty"`
	// To is the destination that was asked about.
	To       string   `json:"to,omitempty"`
	Families []Family `json:"families"`
	// Problems are those of no family in particular.
	Problems []Problem `json:"problems,omitempty"`
	// RangesUnknown reports whether the ranges of addresses that the cluster uses for itself could not
	// be read: rows that have them in their matches may differ from those of the cluster.
	RangesUnknown bool `json:"-"`
}

// Family is what becomes of what a pod sends in one IP family.
type Family struct {
	Family  string  `json:"family"`
	Address string  `json:"address,omitempty"` // of the pod
	Outcome Outcome `json:"outcome"`
	// By is the object that decides: "EgressIP/prod"; absent where none does.
	By string `json:"by,omitempty"`
	// Why is a sentence.
	Why string `json:"why"`
	// Sources are the addresses that the other side may see; of several, each
	// connection has one.
	Sources []Source `json:"sources,omitempty"`
	// Gateways are the next hops outside the cluster.
	Gateways []Gateway `json:"gateways,omitempty"`
	// Selected are all objects that select the pod in this family.
	Selected []Selected `json:"selected,omitempty"`
	// ImplementedBy are the rows and rules that make it so, when all is in force.
	ImplementedBy []Implementation `json:"implementedBy,omitempty"`
	Problems      []Problem        `json:"problems,omitempty"`
}

// Implementation is a row of the northbound database, or what the kernel of a node has.
type Implementation struct {
	// Node is the one whose kernel it is; absent for the northbound database.
	Node string `json:"node,omitempty"`
	// What is the row or the rule, as text for people.
	What string `json:"what"`
	// Row is the row; zero for what a kernel has.
	Row nb.Row `json:"-"`
}

// Source is an address that what the pod sends leaves with.
type Source struct {
	// Address is absent where the routing of the node decides.
	Address string `json:"address,omitempty"`
	// Node is the one that it leaves the cluster from.
	Node string `json:"node,omitempty"`
	// Network is the network of the node that the address is in, or the routing table.
	Network string `json:"network,omitempty"`
	// Secondary reports whether that is another network than the one of the nodes.
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
	// Why says why it decides, or what decides instead.
	Why string `json:"why"`
	// Conditions are those that its status has.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is a condition of an object, shortened.
type Condition struct {
	Type   string      `json:"type"`
	Status string      `json:"status"`
	Reason string      `json:"reason,omitempty"`
	Since  metav1.Time `json:"since"`
}

// The reasons of problems that no condition has.
const (
	// ReasonNoStatus: the object has no conditions yet.
	ReasonNoStatus = "NoStatus"
	// ReasonNotPlanned: the status says something else than the planner does now.
	ReasonNotPlanned = "StatusDiffers"
	// ReasonWaiting: what is planned is not in force.
	ReasonWaiting = "Waiting"
	// ReasonStale: the status is about an earlier spec.
	ReasonStale = "StatusOutdated"
	// ReasonNodeNotReady: the node, or that of the pod, is not Ready.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonNodeUnreachable: the node is Ready, and does not answer the master's probes.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonNoAddress: the pod has no address yet.
	ReasonNoAddress = "NoAddress"
	// ReasonGatewayRefused: a gateway that an annotation names is not used.
	ReasonGatewayRefused = "GatewayRefused"
	// ReasonLabel: the label of the host of an EgressService is not where it is to be.
	ReasonLabel = "LabelDiffers"
	// ReasonMasterSilent: no master renews its lease.
	ReasonMasterSilent = "MasterSilent"
)

// silent is after how long without renewal of its lease a master is not there; its lease is
// given away after a few seconds.
const silent = time.Minute

// header returns the begin of an answer.
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
	if !c.masterSilent() {
		return h, nil
	}
	return h, []Problem{{Object: "master", Reason: ReasonMasterSilent, Since: &renewed,
		Message: "no master has renewed its lease since: statuses are as old as that, and nothing moves"}}
}

// masterSilent reports whether no master is there, as far as is known.
func (c *Cluster) masterSilent() bool {
	return !c.snap.Renewed.IsZero() && c.snap.Taken.Sub(c.snap.Renewed) >= silent
}

// conditionsOf shortens conditions, and returns what they say is not in place.
func conditionsOf(object string, generation int64, all []metav1.Condition) (short []Condition, problems []Problem) {
	if len(all) == 0 {
		problems = append(problems, Problem{Object: object, Reason: ReasonNoStatus, Message: "no master has looked at it yet"})
	}
	for _, c := range all {
		if c.Type == conditions.FormerConflict {
			continue
		}
		short = append(short, Condition{c.Type, string(c.Status), c.Reason, c.LastTransitionTime})
		since := c.LastTransitionTime
		good := metav1.ConditionTrue
		switch c.Type {
		case conditions.Conflict: // what others have is told where it is this pod
			good = c.Status
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
