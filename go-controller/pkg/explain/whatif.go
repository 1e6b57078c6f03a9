package explain

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
)

// The maximum time for which new connections of a pod get no answer, according to
// docs/egress-ip.md and docs/egress-service.md, with the default timeouts.
const (
	pausePlanned = 100 * time.Millisecond
	pauseLost    = 2 * time.Second
)

// WhatIf is the answer about a hypothetical change.
type WhatIf struct {
	Header `json:",inline"`
	// Changes describe the change, a line for each part.
	Changes []string `json:"changes"`
	// Moves are the egress addresses and EgressServices that get another node.
	Moves []Move `json:"moves,omitempty"`
	// Pods are the pods whose traffic leaves differently than before.
	Pods []PodChange `json:"pods,omitempty"`
	// Conditions are the conditions that change.
	Conditions []ConditionChange `json:"conditions,omitempty"`
	// Rows are the changes in the northbound database.
	Rows []RowChange `json:"rows,omitempty"`
	// Problems are about what was in place before, and will not be afterwards.
	Problems []Problem `json:"problems,omitempty"`
}

// Move is an egress address or an EgressService that gets another node.
type Move struct {
	Object string `json:"object"`
	// Address is absent if the object is an EgressService, which has a host.
	Address string `json:"address,omitempty"`
	// From and To are nodes; absent for none, "ALL" for each pod's own node.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	Why  string `json:"why"`
}

// PodChange is the effect on a pod in one IP family.
type PodChange struct {
	Pod    string `json:"pod"`
	Node   string `json:"node,omitempty"`
	Family string `json:"family"`
	// From and To are how its traffic leaves before and after; absent if the pod does not exist.
	From *Way `json:"from,omitempty"`
	To   *Way `json:"to,omitempty"`
	// Pause is the maximum time for which new connections get no answer; absent if it is
	// unknown, or if the pod's traffic does not leave at all.
	Pause *metav1.Duration `json:"pause,omitempty"`
	// Connections is the effect on open connections.
	Connections Connections `json:"connections,omitempty"`
}

// Way is how a pod's traffic leaves the cluster; the fields are those of Family.
type Way struct {
	Outcome  Outcome   `json:"outcome"`
	By       string    `json:"by,omitempty"`
	Why      string    `json:"why,omitempty"`
	Sources  []Source  `json:"sources,omitempty"`
	Gateways []Gateway `json:"gateways,omitempty"`
	// selected reports whether any object selects the pod.
	selected bool
}

// Connections is the effect on open connections.
type Connections string

// The effects on open connections.
const (
	// ConnectionsKept: they continue with their current address.
	ConnectionsKept Connections = "Kept"
	// ConnectionsBroken: their address changes, so that the other side resets them, or the
	// pod's traffic does not leave.
	ConnectionsBroken Connections = "Broken"
)

// ConditionChange is a condition that changes.
type ConditionChange struct {
	Object string `json:"object"`
	Type   string `json:"type"`
	// From is absent if the object is new.
	From *ConditionState `json:"from,omitempty"`
	To   ConditionState  `json:"to"`
}

// ConditionState is the state of a condition.
type ConditionState struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Row is a row of the northbound database as text, with its owner.
type Row struct {
	Owner string `json:"owner"`
	Row   string `json:"row"`
}

// RowChange is a row that is added or removed; a changed row is both.
type RowChange struct {
	// Change is "added" or "removed".
	Change string `json:"change"`
	Row    `json:",inline"`
}

// The changes of rows.
const (
	rowAdded   = "added"
	rowRemoved = "removed"
)

// noteSettled is the note about the compared states.
const noteSettled = "operations in progress are assumed to finish before the change, and every reachable node to acknowledge its assignments"

// WhatIf returns the effects of a change. It compares the cluster after all current decisions
// are carried out with the cluster after the change and all resulting decisions are carried out.
func (c *Cluster) WhatIf(change Change) (WhatIf, error) {
	before, err := settled(c.snap, nil)
	if err != nil {
		return WhatIf{}, err
	}
	snap, err := change.Apply(before.snap)
	if err != nil {
		return WhatIf{}, err
	}
	after, err := settled(snap, before.states)
	if err != nil {
		return WhatIf{}, err
	}
	header, _ := c.header(KindWhatIf)
	out := WhatIf{Header: header, Changes: change.Words()}
	d := difference{before, after}
	out.Moves = d.moves()
	out.Pods = d.pods()
	out.Conditions, out.Problems = d.conditions()
	out.Rows = d.rows()
	for _, p := range out.Pods {
		if problem, ok := p.problem(); ok {
			out.Problems = append(out.Problems, problem)
		}
	}
	out.InPlace = len(out.Problems) == 0
	out.Notes = append(append(slices.Clone(out.Notes), before.reachabilityNotes()...), noteSettled)
	for _, o := range change.Objects {
		switch o.(type) {
		case *corev1.Pod, *corev1.Service:
			out.Notes = append(out.Notes, "EndpointSlices are those of the cluster, or of the file: changes that Kubernetes would make to pods and Services are not predicted")
		}
	}
	out.Notes = slices.Compact(out.Notes)
	return out, nil
}

// difference is a cluster before and after a change.
type difference struct{ before, after *Cluster }

// moves returns the addresses and EgressServices that get another node.
func (d difference) moves() []Move {
	var moves []Move
	for _, key := range keysOf(d.before.placed, d.after.placed) {
		was, is := d.before.placed[key].Nodes(), d.after.placed[key].Nodes()
		for _, a := range keysFunc(netip.Addr.Compare, was, is) {
			if was[a] != is[a] {
				moves = append(moves, Move{Object: kindEgressIP + "/" + key, Address: a.String(), From: was[a], To: is[a], Why: d.whyMoved(key, a, was[a], is[a])})
			}
		}
	}
	host := func(c *Cluster, key string) string {
		if _, ok := c.services[key]; !ok {
			return ""
		}
		return egressservice.Status(c.services[key], c.hosted[key])
	}
	for _, key := range keysOf(d.before.services, d.after.services) {
		if was, is := host(d.before, key), host(d.after, key); was != is {
			moves = append(moves, Move{Object: kindEgressService + "/" + key, From: was, To: is, Why: d.whyRehosted(key, was, is)})
		}
	}
	return moves
}

// whyMoved returns why an address is no longer on its previous node.
func (d difference) whyMoved(key string, a netip.Addr, from, to string) string {
	obj := d.after.egressIPs[key]
	if obj == nil {
		return "the EgressIP is deleted"
	}
	e := egressip.Decode(obj)
	if !slices.Contains(e.Addrs(), a) {
		return "the EgressIP does not ask for it any more"
	}
	for _, p := range d.after.placed[key].Placements {
		if p.Addr == a && p.Node == "" {
			return p.Refused.Message
		}
	}
	if from == "" {
		return "node " + to + " can have it"
	}
	return d.objectionTo(from, func(n place.Node) place.Reason { return egressip.Objection(n, e, a) })
}

// whyRehosted returns why an EgressService has another host.
func (d difference) whyRehosted(key, from, to string) string {
	s, ok := d.after.services[key]
	switch {
	case !ok:
		return "the EgressService is deleted"
	case to == "":
		return egressservice.RejectionReason(s, d.after.hosted[key]).Message
	case from == "" || d.before.nodes[from].Name == "":
		return "it is decided anew"
	}
	return d.objectionTo(from, func(n place.Node) place.Reason { return egressservice.Objection(n, s) })
}

// objectionTo returns the objection to a node.
func (d difference) objectionTo(node string, objection func(place.Node) place.Reason) string {
	n, ok := d.after.nodes[node]
	if !ok {
		return "node " + node + ": " + string(place.NodeGone)
	}
	if why := objection(n); why != "" {
		return "node " + node + ": " + string(why)
	}
	return "it is decided anew"
}

// pods returns the pods whose traffic leaves differently.
func (d difference) pods() []PodChange {
	var all []PodChange
	for _, key := range keysOf(d.before.pods, d.after.pods) {
		was, is := d.before.ways(key), d.after.ways(key)
		for _, f := range keysOf(was, is) {
			from, to := was[f], is[f]
			if from.same(to) {
				continue
			}
			p := PodChange{Pod: key, Node: d.nodeOf(key), Family: f, From: from, To: to}
			if from != nil && to != nil {
				p.Pause, p.Connections = d.effect(p.Node, from, to)
			}
			all = append(all, p)
		}
	}
	return all
}

// nodeOf returns the node of a pod.
func (d difference) nodeOf(pod string) string {
	p := cmp.Or(d.after.pods[pod], d.before.pods[pod])
	return p.Spec.NodeName
}

// ways returns how a pod's traffic leaves, by family; empty if the pod does not exist or sends nothing.
func (c *Cluster) ways(key string) map[string]*Way {
	p, err := c.pod(key, netip.AddrPort{}, false)
	if err != nil {
		return nil // the pod does not exist
	}
	ways := map[string]*Way{}
	for _, f := range p.Families {
		w := &Way{Outcome: f.Outcome, By: f.By, Sources: f.Sources, Gateways: f.Gateways, Why: f.Why, selected: len(f.Selected) > 0}
		if f.Outcome == OutcomeNone {
			continue // it sends nothing, like a pod that does not exist
		}
		if slices.Contains(c.snap.Lost, p.Node) && !c.pods[key].Spec.HostNetwork {
			w = &Way{Outcome: OutcomeLost, Why: "its node is lost"}
		}
		ways[f.Family] = w
	}
	return ways
}

// same reports whether two ways look the same from outside.
func (w *Way) same(o *Way) bool {
	if w == nil || o == nil {
		return w == o
	}
	return w.Outcome == o.Outcome && slices.Equal(w.Sources, o.Sources) && slices.Equal(w.Gateways, o.Gateways)
}

// noEgress reports whether the pod's traffic does not leave the cluster.
func (w *Way) noEgress() bool {
	return slices.Contains([]Outcome{OutcomeHeld, OutcomeDropped, OutcomeUnknown, OutcomeLost}, w.Outcome)
}

// effect returns the effects of a changed way on a pod on a node.
func (d difference) effect(node string, from, to *Way) (*metav1.Duration, Connections) {
	switch {
	case to.noEgress():
		return nil, ConnectionsBroken
	case from.noEgress():
		return nil, ""
	case !slices.Equal(addresses(from.Sources), addresses(to.Sources)) && !d.addressOnOwnNode(node, from, to):
		return &metav1.Duration{}, ConnectionsBroken
	}
	pause := time.Duration(0)
	for _, s := range from.Sources {
		switch {
		case slices.Contains(d.after.snap.Lost, s.Node):
			pause = max(pause, pauseLost)
		case !slices.ContainsFunc(to.Sources, func(o Source) bool { return o.Node == s.Node }):
			pause = max(pause, pausePlanned)
		}
	}
	return &metav1.Duration{Duration: pause}, ConnectionsKept
}

// addressOnOwnNode reports whether a pod gains or loses an EgressIP whose address its own
// node has on the primary network: open connections are not affected then.
func (d difference) addressOnOwnNode(node string, from, to *Way) bool {
	own := func(w *Way) bool {
		return !slices.ContainsFunc(w.Sources, func(s Source) bool { return s.Node != node || s.Secondary })
	}
	turns := from.Outcome == OutcomeNode && to.Outcome == OutcomeEgressIP || from.Outcome == OutcomeEgressIP && to.Outcome == OutcomeNode
	return turns && own(from) && own(to)
}

func addresses(sources []Source) []string {
	var all []string
	for _, s := range sources {
		all = append(all, s.Address)
	}
	slices.Sort(all)
	return all
}

// problem returns the problem of a pod whose traffic no longer leaves, or leaves with the node's address
// although an object selects the pod.
func (p PodChange) problem() (Problem, bool) {
	switch {
	case p.From == nil || p.To == nil || p.From.noEgress() || p.To.Outcome == OutcomeLost:
	case p.To.noEgress():
		return Problem{Object: "Pod/" + p.Pod, Reason: string(p.To.Outcome), Message: p.Family + ": " + headlines[p.To.Outcome]}, true
	case p.To.Outcome == OutcomeNode && p.To.selected && p.From.Outcome != OutcomeNode:
		return Problem{Object: "Pod/" + p.Pod, Reason: string(p.To.Outcome), Message: p.Family + ": " + p.To.Why}, true
	}
	return Problem{}, false
}

// conditions returns the conditions that change, and the problems of those that turn bad.
func (d difference) conditions() ([]ConditionChange, []Problem) {
	var all []ConditionChange
	var problems []Problem
	was, is := d.before.conditionsByObject(), d.after.conditionsByObject()
	for _, object := range slices.Sorted(maps.Keys(is)) {
		for _, c := range is[object] {
			i := slices.IndexFunc(was[object], func(o metav1.Condition) bool { return o.Type == c.Type })
			if c.Type == conditions.FormerConflict || i >= 0 && was[object][i].Status == c.Status && was[object][i].Reason == c.Reason {
				continue
			}
			change := ConditionChange{Object: object, Type: c.Type, To: stateOf(c)}
			if i >= 0 {
				from := stateOf(was[object][i])
				change.From = &from
			}
			all = append(all, change)
		}
		_, then := conditionsOf(object, 0, was[object])
		_, now := conditionsOf(object, 0, is[object])
		for _, p := range now {
			if !slices.ContainsFunc(then, func(o Problem) bool { return o.Reason == p.Reason }) {
				p.Since = nil
				problems = append(problems, p)
			}
		}
	}
	return all, problems
}

func stateOf(c metav1.Condition) ConditionState {
	return ConditionState{Status: string(c.Status), Reason: c.Reason, Message: c.Message}
}

// conditionsByObject returns the conditions of all egress objects.
func (c *Cluster) conditionsByObject() map[string][]metav1.Condition {
	all := map[string][]metav1.Condition{}
	for _, e := range c.snap.EgressIPs {
		all[kindEgressIP+"/"+e.Name] = e.Status.Conditions
	}
	for _, eg := range c.snap.EgressServices {
		all[kindEgressService+"/"+eg.Namespace+"/"+eg.Name] = eg.Status.Conditions
	}
	for _, r := range c.snap.Routes {
		all[kindRoute+"/"+r.Name] = r.Status.Conditions
	}
	return all
}

// rows returns the rows that are added or removed, by owner.
func (d difference) rows() []RowChange {
	was, is := d.before.rows(), d.after.rows()
	var all []RowChange
	for r := range was {
		if !is[r] {
			all = append(all, RowChange{rowRemoved, r})
		}
	}
	for r := range is {
		if !was[r] {
			all = append(all, RowChange{rowAdded, r})
		}
	}
	slices.SortFunc(all, func(a, b RowChange) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), -cmp.Compare(a.Change, b.Change), cmp.Compare(a.Row.Row, b.Row.Row))
	})
	return all
}

// keysOf returns the keys of two maps, sorted.
func keysOf[K cmp.Ordered, V any](a, b map[K]V) []K { return keysFunc(cmp.Compare[K], a, b) }

func keysFunc[K comparable, V any](compare func(K, K) int, a, b map[K]V) []K {
	keys := slices.SortedFunc(maps.Keys(a), compare)
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compare)
	return keys
}
