package explain

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	egressipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ErrDisabled means that the feature of an object is not enabled.
var ErrDisabled = errors.New("the feature is not enabled")

// EgressIP is the answer about an EgressIP.
type EgressIP struct {
	Header    `json:",inline"`
	EgressIP  string       `json:"egressIP"`
	Addresses []Assignment `json:"addresses"`
	// Pods are the selected pods.
	Pods       []SelectedPod `json:"pods,omitempty"`
	Conditions []Condition   `json:"conditions,omitempty"`
	// Conflicts are the older EgressIPs that have some of its pods.
	Conflicts []string  `json:"conflicts,omitempty"`
	Problems  []Problem `json:"problems,omitempty"`
}

// Assignment is the placement of an egress address.
type Assignment struct {
	Address string `json:"address"`
	// Node is the node chosen by the planner; absent if there is none.
	Node string `json:"node,omitempty"`
	// Network is the network of the node that contains the address.
	Network string `json:"network,omitempty"`
	// Secondary reports whether Network is a secondary network.
	Secondary bool `json:"secondary,omitempty"`
	// Programmed reports whether the node acknowledges that it has the address.
	Programmed bool `json:"programmed"`
	// Since is when the condition Programmed of the EgressIP became false.
	Since *metav1.Time `json:"since,omitempty"`
	// Why is the reason for the placement, or for having none.
	Why string `json:"why"`
	// Others are the other nodes.
	Others []OtherNode `json:"others,omitempty"`
}

// OtherNode is a node that was not chosen.
type OtherNode struct {
	Node string `json:"node"`
	// Possible reports whether it could be chosen if the chosen node fails.
	Possible bool   `json:"possible"`
	Why      string `json:"why"`
}

// SelectedPod is a pod that an object selects.
type SelectedPod struct {
	Pod      string      `json:"pod"`
	Node     string      `json:"node,omitempty"`
	Families []PodFamily `json:"families,omitempty"`
}

// PodFamily is the outcome for a pod's traffic in one IP family.
type PodFamily struct {
	Family  string   `json:"family"`
	Outcome Outcome  `json:"outcome"`
	By      string   `json:"by,omitempty"`
	Sources []Source `json:"sources,omitempty"`
	// WhyNot is why the traffic does not leave as the selecting object specifies.
	WhyNot string `json:"whyNot,omitempty"`
	// considered reports whether the object was considered for the pod.
	considered bool
}

// EgressIP explains an EgressIP by name.
func (c *Cluster) EgressIP(name string) (EgressIP, error) {
	if !c.snap.Settings.EgressIP {
		return EgressIP{}, fmt.Errorf("EgressIP %s: %w", name, ErrDisabled)
	}
	obj := c.egressIPs[name]
	if obj == nil {
		return EgressIP{}, fmt.Errorf("EgressIP %s: %w", name, ErrNotFound)
	}
	out := c.egressIP(obj)
	header, problems := c.header(KindEgressIP)
	out.Header, out.Problems = header, append(problems, out.Problems...)
	out.InPlace = len(out.Problems) == 0
	out.Notes = append(slices.Clone(out.Notes), c.reachabilityNotes()...)
	return out, nil
}

// egressIP returns the answer about an EgressIP without its header.
func (c *Cluster) egressIP(obj *egressipv1.EgressIP) EgressIP {
	name := obj.Name
	object := "EgressIP/" + name
	out := EgressIP{EgressIP: name}
	out.Conditions, out.Problems = c.egressIPState(obj)
	e := egressip.Decode(obj)
	for _, p := range c.placed[name].Placements {
		out.Addresses = append(out.Addresses, c.assignment(e, obj, p))
	}
	out.Pods = c.selectedPods(object, func(p *corev1.Pod) bool { return slices.Contains(c.selecting(p), name) })
	out.Problems = append(out.Problems, waiting(out.Pods, object)...)
	for _, other := range c.members.Conflicts(name) {
		out.Conflicts = append(out.Conflicts, "EgressIP/"+other)
	}
	return out
}

// egressIPState returns the conditions of an EgressIP and its deviations from the plan.
func (c *Cluster) egressIPState(obj *egressipv1.EgressIP) ([]Condition, []Problem) {
	object := "EgressIP/" + obj.Name
	short, problems := conditionsOf(object, obj.Generation, obj.Status.Conditions)
	e := egressip.Decode(obj)
	for _, p := range c.placed[obj.Name].Placements {
		if now := e.Items[p.Addr]; p.Addr.IsValid() && now != p.Node {
			problems = append(problems, Problem{Object: object, Reason: ReasonNotPlanned,
				Message: fmt.Sprintf("%s: the planner says node %q, the status %q", p.Addr, p.Node, now)})
		}
	}
	for _, ack := range c.pendingAcks(obj) {
		problems = append(problems, ack.problem(obj))
	}
	return short, problems
}

// pendingAck is an acknowledgement that a node still owes.
type pendingAck egressip.PendingAck

// pendingAcks returns the acknowledgements that nodes still owe for an EgressIP.
func (c *Cluster) pendingAcks(obj *egressipv1.EgressIP) []pendingAck {
	var acks []pendingAck
	digest := func(given []netip.Addr) string { return c.members.Digest(obj.Name, given) }
	for _, a := range c.placed[obj.Name].PendingAcks(obj.Status, digest, c.live) {
		acks = append(acks, pendingAck(a))
	}
	return acks
}

// live returns a node by name if it still does what it last reported, as far as is known: if it answers the master's probes, whatever
// Kubernetes says, or if it is ready while the results of the probes are not known.
func (c *Cluster) live(name string) (topology.Node, bool) {
	n, ok := c.nodes[name]
	return n.Node, ok && n.Reach != place.Dead && (n.Ready || c.probed())
}

func (a pendingAck) problem(obj *egressipv1.EgressIP) Problem {
	return Problem{Object: "EgressIP/" + obj.Name, Reason: ReasonWaiting,
		Message: fmt.Sprintf("node %s is yet to %s", a.Node, a.What), Since: unprogrammed(obj.Status.Conditions)}
}

// unprogrammed returns since when an object is not programmed, or nil if it is, or if its
// conditions do not show it.
func unprogrammed(all []metav1.Condition) *metav1.Time {
	if c := meta.FindStatusCondition(all, conditions.Programmed); c != nil && c.Status != metav1.ConditionTrue {
		return &c.LastTransitionTime
	}
	return nil
}

// assignment returns the placement of an address, and the reason for it.
func (c *Cluster) assignment(e egressip.EgressIP, obj *egressipv1.EgressIP, p egressip.Placement) Assignment {
	out := Assignment{Address: p.Text, Node: p.Node}
	switch {
	case p.Node == "":
		out.Why = p.Refused.Message
	case e.Items[p.Addr] == p.Node:
		out.Why = "it stays with the node that the status gives it to"
	default:
		out.Why = "chosen of the nodes that can hold it: addresses are spread"
	}
	if p.Node != "" {
		out.Network, out.Secondary = p.Network.String(), !p.Primary
		out.Programmed = egressip.Answers(obj.Status, p.Node, p.Addr)
	}
	if !out.Programmed {
		out.Since = unprogrammed(obj.Status.Conditions)
	}
	if !p.Addr.IsValid() || p.Refused != (egressip.Refusal{}) && p.Refused.Reason != egressip.NoNode {
		return out
	}
	for _, n := range c.candidates() {
		if n.Name == p.Node {
			continue
		}
		why := egressip.Objection(n, e, p.Addr)
		if why == "" && slices.ContainsFunc(c.placed[e.Key].Placements, func(o egressip.Placement) bool {
			return o.Node == n.Name && o.Addr != p.Addr && topology.FamilyOf(o.Addr) == topology.FamilyOf(p.Addr)
		}) {
			why = place.GroupOnNode
		}
		other := OtherNode{Node: n.Name, Possible: why == "", Why: string(why)}
		if other.Possible {
			other.Why = fmt.Sprintf("could hold it, and has %d other addresses", len(c.index.held[n.Name]))
		}
		out.Others = append(out.Others, other)
	}
	return out
}

// held is an address that an EgressIP has on a node.
type held struct {
	egressIP string
	egressip.Placement
}

// selectedPods returns the pods on the pod network that an object selects, with
// the outcomes for their traffic.
func (c *Cluster) selectedPods(object string, selects func(*corev1.Pod) bool) []SelectedPod {
	var pods []SelectedPod
	for _, p := range c.snap.Pods {
		if kube.NeedsNetwork(p) && selects(p) {
			pods = append(pods, c.selectedPod(object, kube.PodKey(p)))
		}
	}
	slices.SortFunc(pods, func(a, b SelectedPod) int { return cmp.Compare(a.Pod, b.Pod) })
	return pods
}

// selectedPod returns the outcome for a pod that an object selects.
func (c *Cluster) selectedPod(object, key string) SelectedPod {
	out := SelectedPod{Pod: key}
	answer, err := c.pod(key, netip.AddrPort{}, false)
	if err != nil {
		return out // the pod does not exist
	}
	out.Node = answer.Node
	for _, f := range answer.Families {
		family := PodFamily{Family: f.Family, Outcome: f.Outcome, By: f.By, Sources: f.Sources}
		if f.By != object {
			family.WhyNot = f.Why
			for _, s := range f.Selected {
				if s.Object == object {
					family.WhyNot, family.considered = s.Why, true
				}
			}
		}
		out.Families = append(out.Families, family)
	}
	return out
}

// waiting returns the problems of the pods that an object has, but whose traffic does not leave
// as planned yet.
func waiting(pods []SelectedPod, object string) []Problem {
	var out []Problem
	for _, p := range pods {
		for _, f := range p.Families {
			if f.By == object && (f.Outcome == OutcomeHeld || f.Outcome == OutcomeUnknown) {
				out = append(out, Problem{Object: object, Reason: ReasonWaiting, Message: "pod " + p.Pod + ", " + f.Family + ": " + headlines[f.Outcome]})
			}
		}
	}
	return out
}

// Text writes the answer as text for people.
func (e EgressIP) Text(w io.Writer) {
	fmt.Fprintf(w, "EgressIP %s\n", e.EgressIP)
	now := e.AsOf.Time
	conditionLines(w, "  ", e.Conditions, now)
	for _, a := range e.Addresses {
		a.text(w, a.Address, now)
	}
	podLines(w, "Pods", e.Pods)
	for _, other := range e.Conflicts {
		fmt.Fprintf(w, "%s is older and has some of the pods\n", other)
	}
	problems(w, "", e.Problems, now)
	e.Header.text(w)
}

// text writes an assignment under a title.
func (a Assignment) text(w io.Writer, title string, now time.Time) {
	node := "node " + a.Node
	if a.Node == egressservicev1.HostAll {
		node = "every node"
	}
	switch {
	case a.Node == "":
		fmt.Fprintf(w, "\n%s: on no node%s\n", title, since(a.Since, now))
	case a.Programmed:
		fmt.Fprintf(w, "\n%s: on %s, programmed\n", title, node)
	default:
		fmt.Fprintf(w, "\n%s: planned for %s, not programmed%s\n", title, node, since(a.Since, now))
	}
	a.body(w)
}

// body writes the reasons for an assignment.
func (a Assignment) body(w io.Writer) {
	fmt.Fprintf(w, "  %-10s %s\n", "why", a.Why)
	switch {
	case a.Secondary:
		fmt.Fprintf(w, "  %-10s %s, another one than that of the nodes\n", "network", a.Network)
	case a.Network != "":
		fmt.Fprintf(w, "  %-10s %s\n", "network", a.Network)
	}
	otherLines(w, a.Others)
}

func otherLines(w io.Writer, others []OtherNode) {
	for _, o := range others {
		mark := "-"
		if o.Possible {
			mark = "+"
		}
		fmt.Fprintf(w, "  %s node %s: %s\n", mark, o.Node, o.Why)
	}
}

func conditionLines(w io.Writer, indent string, all []Condition, now time.Time) {
	for _, c := range all {
		fmt.Fprintf(w, "%s%s %s (%s)%s\n", indent, c.Type, c.Status, c.Reason, since(&c.Since, now))
	}
}

func podLines(w io.Writer, title string, pods []SelectedPod) {
	fmt.Fprintf(w, "\n%s: %d\n", title, len(pods))
	for _, p := range pods {
		fmt.Fprintf(w, "  %s", p.Pod)
		if p.Node != "" {
			fmt.Fprintf(w, " on node %s", p.Node)
		}
		fmt.Fprintln(w)
		for _, f := range p.Families {
			fmt.Fprintf(w, "      %s %s", f.Family, headlines[f.Outcome])
			if f.By != "" {
				fmt.Fprintf(w, ", by %s", f.By)
			}
			for i, s := range f.Sources {
				separator := "; "
				if i == 0 {
					separator = ": "
				}
				fmt.Fprint(w, separator, s.text())
			}
			if f.WhyNot != "" {
				fmt.Fprintf(w, " (%s)", f.WhyNot)
			}
			fmt.Fprintln(w)
		}
	}
}
