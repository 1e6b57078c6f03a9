package egressip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Reasons of conditions, in addition to those of a Refusal and of package conditions.
const (
	ReasonAssigned           = "Assigned"
	ReasonNotAssigned        = "NotAssigned"
	ReasonProgrammed         = "Programmed"
	ReasonNodeProblem        = "NodeProblem"
	ReasonWaitingForNode     = "WaitingForNode"
	ReasonWaitingForPolicies = "WaitingForPolicies"
	ReasonNotAcknowledged    = "NotAcknowledged"
	ReasonNoConflict         = "NoConflict"
	ReasonOlderWins          = "OlderEgressIP"
)

// Report is the state of the pods that an EgressIP selects.
type Report struct {
	Conflicts []string // the EgressIPs that have some of them, sorted
	Waiting   int      // the number of pods whose traffic does not leave as planned yet
	// Unresponsive reports whether a node does not acknowledge its assignment, Stuck whether
	// its ovn-controller does not apply changes. nil means no node.
	Unresponsive, Stuck func(node string) bool
}

// Items returns the status items of a decision.
func (d Decision) Items() []v1.EgressIPStatusItem {
	var items []v1.EgressIPStatusItem
	for _, p := range d.Placements {
		if p.Node != "" {
			items = append(items, v1.EgressIPStatusItem{Node: p.Node, EgressIP: p.Addr.String(), Network: p.Network.String()})
		}
	}
	return items
}

// Nodes returns a node by name, if it is not considered dead.
type Nodes func(name string) (topology.Node, bool)

// Paths returns the paths that a decision opens for a pod with the given addresses, as far as
// the status entries of the nodes allow. digest returns the digest of all pods for the
// addresses that a node is given on its secondary networks.
func (d Decision) Paths(status v1.EgressIPStatus, pod []netip.Addr, digest func(given []netip.Addr) string, nodes Nodes) []Path {
	given := d.given(status, nodes)
	translates := func(node string, addr netip.Addr) bool {
		a, ok := topology.AddrOf(topology.FamilyOf(addr), pod)
		return ok && SameShare(a, nodeStatusOf(status, node).Digest, digest(given[node]))
	}
	var paths []Path
	for _, p := range d.Placements {
		if p.Node == "" {
			continue
		}
		path := Path{Placement: p, Answered: Answers(status, p.Node, p.Addr)}
		path.Programmed = !p.Primary && translates(p.Node, p.Addr)
		paths = append(paths, path)
	}
	fallback(paths, status, nodes, translates)
	return paths
}

func nodeStatusOf(status v1.EgressIPStatus, node string) v1.ProgrammedStatus {
	i := slices.IndexFunc(status.Programmed, func(w v1.ProgrammedStatus) bool { return w.Node == node })
	if i < 0 {
		return v1.ProgrammedStatus{}
	}
	return status.Programmed[i]
}

// Conditions returns the conditions of an EgressIP, without timestamps and generation.
func Conditions(d Decision, status v1.EgressIPStatus, r Report) []metav1.Condition {
	return []metav1.Condition{assigned(d), programmed(d, status, r), conflict(d, r)}
}

func condition(kind string, is bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: conditions.Cut(message)}
}

// Refusals returns why addresses have no node, in the order of the spec. Addresses that no node can hold for the same reasons are
// refused together.
func (d Decision) Refusals() []Refusal {
	var refusals []Refusal
	for i, p := range d.Placements {
		why := p.Refused
		if p.Unplaced != "" {
			alike := func(q Placement) bool { return q.Unplaced == p.Unplaced }
			if slices.ContainsFunc(d.Placements[:i], alike) {
				continue
			}
			why = noNode(addrsOf(d.Placements[i:], alike), p.Unplaced)
		}
		if why != (Refusal{}) && !slices.Contains(refusals, why) {
			refusals = append(refusals, why)
		}
	}
	return refusals
}

// addrsOf lists the addresses of some placements.
func addrsOf(placements []Placement, of func(Placement) bool) string {
	const most = 5
	var texts []string
	for _, p := range placements {
		switch {
		case !of(p):
		case len(texts) == most:
			return strings.Join(append(texts, "..."), ", ")
		default:
			texts = append(texts, p.Addr.String())
		}
	}
	return strings.Join(texts, ", ")
}

func assigned(d Decision) metav1.Condition {
	refusals := d.Refusals()
	if len(refusals) == 0 {
		return condition(v1.ConditionAssigned, true, ReasonAssigned, "every address has a node")
	}
	var messages []string
	for _, why := range refusals {
		messages = append(messages, why.Message)
	}
	return condition(v1.ConditionAssigned, false, string(refusals[0].Reason), strings.Join(messages, ". "))
}

func programmed(d Decision, status v1.EgressIPStatus, r Report) metav1.Condition {
	var waits, problems, unresponsive []string
	nodes := d.Nodes()
	for _, p := range d.Placements {
		if p.Node == "" {
			continue
		}
		nodeStatus := nodeStatusOf(status, p.Node)
		if problem := "node " + p.Node + ": " + nodeStatus.Problem; nodeStatus.Problem != "" && !slices.Contains(problems, problem) {
			problems = append(problems, problem)
		}
		switch holder := otherHolder(status, p); {
		case Answers(status, p.Node, p.Addr):
			if problem := r.unresponsive(p); problem != "" {
				unresponsive = append(unresponsive, problem)
			}
		case retained(status, p) != "":
			if problem := r.unprepared(p, holder, Awaits(status, p.Node, p.Addr)); problem != "" {
				unresponsive = append(unresponsive, problem)
			} else {
				waits = append(waits, fmt.Sprintf("%s is still held by node %s, until node %s is prepared", p.Addr, holder, p.Node))
			}
		case holder != "" && is(r.Unresponsive, holder):
			unresponsive = append(unresponsive, fmt.Sprintf("%s stays with node %s, which does not answer the request to release it: "+
				"check ovnkube-node there, or power the node off and delete it", p.Addr, holder))
		case holder != "":
			waits = append(waits, fmt.Sprintf("%s is still held by node %s", p.Addr, holder))
		case is(r.Unresponsive, p.Node):
			unresponsive = append(unresponsive, fmt.Sprintf("node %s does not take %s, and no other node can: check ovnkube-node there", p.Node, p.Addr))
		default:
			waits = append(waits, fmt.Sprintf("node %s does not hold %s yet", p.Node, p.Addr))
		}
	}
	no := func(reason, message string) metav1.Condition {
		return condition(v1.ConditionProgrammed, false, reason, message)
	}
	switch {
	case len(nodes) == 0:
		return no(ReasonNotAssigned, "no address has a node")
	case len(problems) > 0:
		return no(ReasonNodeProblem, strings.Join(problems, ". "))
	case len(unresponsive) > 0:
		return no(ReasonNotAcknowledged, strings.Join(unresponsive, ". "))
	case len(waits) > 0:
		return no(ReasonWaitingForNode, strings.Join(waits, ". "))
	case r.Waiting > 0:
		return no(ReasonWaitingForPolicies, fmt.Sprintf("policies or translations of %d pods are not in force yet", r.Waiting))
	}
	return condition(v1.ConditionProgrammed, true, ReasonProgrammed, "the addresses are held and policies lead there")
}

// unresponsive describes what keeps pods from using an address that is held, or returns "" if
// nothing does or the cause is unknown.
func (r Report) unresponsive(p Placement) string {
	switch {
	case r.Waiting == 0:
		return ""
	case is(r.Stuck, p.Node):
		return fmt.Sprintf("ovn-controller on node %s does not apply changes, and no other node can take %s: %d pods wait", p.Node, p.Addr, r.Waiting)
	case !p.Primary && is(r.Unresponsive, p.Node):
		return fmt.Sprintf("node %s does not translate for new pods, and %s cannot be taken away from it: "+
			"check ovnkube-node there, or power the node off and delete it", p.Node, p.Addr)
	}
	return ""
}

// unprepared describes what keeps an address on its current node, which releases it once the
// next node is prepared. It returns "" if the cause is unknown.
func (r Report) unprepared(p Placement, holder string, awaits bool) string {
	switch {
	case !awaits && is(r.Unresponsive, p.Node):
		return fmt.Sprintf("node %s does not prepare for %s, which stays with node %s, and no other can take it: "+
			"check ovnkube-node there", p.Node, p.Addr, holder)
	case p.Primary && is(r.Stuck, p.Node):
		return fmt.Sprintf("ovn-controller on node %s does not apply changes, %s stays with node %s, and no other can take it", p.Node, p.Addr, holder)
	}
	return ""
}

func is(f func(node string) bool, node string) bool { return f != nil && f(node) }

func otherHolder(status v1.EgressIPStatus, p Placement) string {
	for _, nodeStatus := range status.Programmed {
		if nodeStatus.Node != p.Node && Answers(status, nodeStatus.Node, p.Addr) {
			return nodeStatus.Node
		}
	}
	return ""
}

// Disputes returns the competing claims to addresses that are held, in the order of the spec.
func (d Decision) Disputes() []Refusal {
	var disputes []Refusal
	for _, p := range d.Placements {
		if p.Disputed != (Refusal{}) && p.Node != "" {
			why := p.Disputed
			why.Message += fmt.Sprintf(", but the EgressIP held it before and keeps it on node %s", p.Node)
			disputes = append(disputes, why)
		}
	}
	return disputes
}

// conflict tells all conflicts. Its reason is that of a claim if there is one: pods and statuses show which other EgressIP
// decides, but nothing else shows a claim.
func conflict(d Decision, r Report) metav1.Condition {
	var messages []string
	reason := ReasonOlderWins
	for _, why := range d.Refusals() {
		if why.Reason == AddressTaken {
			messages = append(messages, why.Message)
			if !strings.Contains(why.Message, "older EgressIP") {
				reason = conditions.ReasonAddressInUse
			}
		}
	}
	for _, why := range d.Disputes() {
		messages = append(messages, why.Message)
		reason = conditions.ReasonAddressInUse
	}
	if len(r.Conflicts) > 0 {
		const most = 5
		names := strings.Join(r.Conflicts[:min(most, len(r.Conflicts))], ", ")
		if len(r.Conflicts) > most {
			names += fmt.Sprintf(" and %d more", len(r.Conflicts)-most)
		}
		messages = append(messages, "older EgressIPs have some of its pods: "+names)
	}
	if len(messages) == 0 {
		return condition(v1.ConditionConflict, false, ReasonNoConflict, "no other EgressIP has its addresses or pods")
	}
	return condition(v1.ConditionConflict, true, reason, strings.Join(messages, ". "))
}

// Moves returns, for each address that changed its node, why it left the previous one,
// or "" if the reason is unknown.
func (d Decision) Moves(before map[netip.Addr]string) []string {
	var reasons []string
	for _, p := range d.Placements {
		if from := before[p.Addr]; from != "" && p.Node != "" && p.Node != from {
			reasons = append(reasons, p.Left)
		}
	}
	return reasons
}

// Abandoned returns the previous nodes of the addresses that moved because those nodes are
// unreachable.
func (d Decision) Abandoned(before map[netip.Addr]string) []string {
	var nodes []string
	for _, p := range d.Placements {
		if from := before[p.Addr]; from != "" && p.Node != "" && p.Node != from && p.Left == string(place.Unreachable) {
			nodes = append(nodes, from)
		}
	}
	return nodes
}

// Notice is an Event.
type Notice struct {
	Warning bool
	Reason  string
	Message string
}

// Reasons of Events, in addition to those of a Refusal.
const (
	EventAssigned        = "Assigned"
	EventMoved           = "Moved"
	EventConflict        = "Conflict"
	EventProblem         = "NodeProblem"
	EventNotAcknowledged = "NotAcknowledged"
)

// Notices returns the Events for a change of status: before are the previous nodes, was and is
// the conditions before and after. Messages that were already in a condition are not repeated,
// so a restart emits no Events.
func Notices(d Decision, before map[netip.Addr]string, was, is []metav1.Condition) []Notice {
	var notices []Notice
	notify := func(warning bool, reason, format string, args ...any) {
		notices = append(notices, Notice{warning, reason, fmt.Sprintf(format, args...)})
	}
	for _, p := range d.Placements {
		switch from := before[p.Addr]; {
		case p.Node == "" || p.Node == from:
		case from == "":
			notify(false, EventAssigned, "Node %s is to hold %s, which is in its network %s", p.Node, p.Addr, p.Network)
		case p.Left == "":
			notify(false, EventMoved, "%s moves from node %s to node %s", p.Addr, from, p.Node)
		default:
			notify(false, EventMoved, "%s moves from node %s to node %s: %s %s", p.Addr, from, p.Node, from, p.Left)
		}
	}
	messageOf := func(conditions []metav1.Condition, kind string) string {
		for _, c := range conditions {
			if c.Type == kind {
				return c.Message
			}
		}
		return ""
	}
	// What a message has no room for is not said: nothing would tell that it was.
	notifyNew := func(kind string, refusals []Refusal) {
		before, now := messageOf(was, kind), messageOf(is, kind)
		for _, why := range refusals {
			if text := conditions.Cut(why.Message); strings.Contains(now, text) && !strings.Contains(before, text) {
				notify(true, string(why.Reason), "%s", text)
			}
		}
	}
	notifyNew(v1.ConditionAssigned, d.Refusals())
	notifyNew(v1.ConditionConflict, d.Disputes())
	for _, c := range is {
		switch {
		case c.Message == messageOf(was, c.Type):
		case c.Type == v1.ConditionConflict && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "pods"):
			notify(true, EventConflict, "%s", c.Message)
		case c.Type == v1.ConditionProgrammed && c.Reason == ReasonNodeProblem:
			notify(true, EventProblem, "%s", c.Message)
		case c.Type == v1.ConditionProgrammed && c.Reason == ReasonNotAcknowledged:
			notify(true, EventNotAcknowledged, "%s", c.Message)
		}
	}
	return notices
}
