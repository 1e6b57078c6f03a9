package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/apis/conditions"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// Objects is the answer about the objects of the features, possibly only a part of them.
type Objects struct {
	Header `json:",inline"`
	// States are the numbers of objects in each state, among those that match the filter
	// without its State.
	States []StateCount `json:"states"`
	// Matched is the number of objects that match the filter, Offset the number of them before
	// the first of Objects.
	Matched int      `json:"matched"`
	Offset  int      `json:"offset"`
	Objects []Object `json:"objects"`
}

// State is the state of an object.
type State string

// The states. An object has the first one that applies.
const (
	// StateInPlace: everything is as planned.
	StateInPlace State = "InPlace"
	// StateUnassigned: one of its addresses, or the whole object, has no node.
	StateUnassigned State = "NotAssigned"
	// StateUnderWay: the master or nodes have yet to carry out the plan.
	StateUnderWay State = "UnderWay"
	// StateProblem: something else is not in place.
	StateProblem State = "Problem"
)

// states are all states, in the order of interest.
var states = []State{StateProblem, StateUnassigned, StateUnderWay, StateInPlace}

// StateCount counts the objects in a state.
type StateCount struct {
	State   State `json:"state"`
	Objects int   `json:"objects"`
}

// Object is a summary of an object of a feature.
type Object struct {
	// Object is "EgressIP/prod" or "EgressService/shop/checkout".
	Object string `json:"object"`
	// Feature is the kind of the object.
	Feature string `json:"feature"`
	State   State  `json:"state"`
	// Since is when the oldest of its problems began, if known.
	Since     *metav1.Time    `json:"since,omitempty"`
	Addresses []ObjectAddress `json:"addresses,omitempty"`
	Problems  []Problem       `json:"problems,omitempty"`
}

// ObjectAddress is an egress address of an object.
type ObjectAddress struct {
	// Address is absent if the routes of the node determine it.
	Address string `json:"address,omitempty"`
	// Node is the node in the status; ALL if every node serves its own pods.
	Node string `json:"node,omitempty"`
	// Next is the node chosen by the planner, if it differs.
	Next string `json:"next,omitempty"`
	// Holders are the nodes that acknowledge the address.
	Holders []string `json:"holders,omitempty"`
}

// ObjectFilter selects objects. Empty fields match all objects.
type ObjectFilter struct {
	// Feature is the kind of the objects.
	Feature string
	State   State
	// Node has, or is to have, one of the addresses.
	Node string
	// Text is contained in the name of the object or in one of the addresses.
	Text string
	// Offset is the number of objects to skip, Limit the maximum number of objects
	// returned; 0 for all.
	Offset, Limit int
}

// Validate returns an error if the filter is not valid.
func (f ObjectFilter) Validate() error {
	kinds := []string{kindEgressIP, kindEgressService, kindRoute}
	switch {
	case f.Feature != "" && !slices.Contains(kinds, f.Feature):
		return fmt.Errorf("feature %q is none; allowed: %s", f.Feature, strings.Join(kinds, ", "))
	case f.State != "" && !slices.Contains(states, f.State):
		return fmt.Errorf("state %q is none; allowed: %v", f.State, states)
	case f.Offset < 0 || f.Limit < 0:
		return fmt.Errorf("offset %d or limit %d is negative", f.Offset, f.Limit)
	}
	return nil
}

// Objects lists the objects that match a filter, those that are not in place first.
func (c *Cluster) Objects(f ObjectFilter) Objects {
	header, _ := c.header(KindObjects)
	out := Objects{Header: header, Offset: f.Offset, Objects: []Object{}}
	counts := map[State]int{}
	for _, o := range c.summaries() {
		if !f.takes(o) {
			continue
		}
		counts[o.State]++
		if f.State != "" && f.State != o.State {
			continue
		}
		if out.Matched++; out.Matched > f.Offset && (f.Limit == 0 || len(out.Objects) < f.Limit) {
			out.Objects = append(out.Objects, o)
		}
	}
	for _, s := range states {
		out.States = append(out.States, StateCount{s, counts[s]})
	}
	out.InPlace = counts[StateInPlace] == out.total()
	out.Notes = append(slices.Clone(out.Notes), c.reachabilityNotes()...)
	return out
}

func (o Objects) total() int {
	n := 0
	for _, s := range o.States {
		n += s.Objects
	}
	return n
}

// takes reports whether an object matches a filter, ignoring its state.
func (f ObjectFilter) takes(o Object) bool {
	if f.Feature != "" && f.Feature != o.Feature {
		return false
	}
	if f.Node != "" && !slices.ContainsFunc(o.Addresses, func(a ObjectAddress) bool {
		return a.Node == f.Node || a.Next == f.Node || slices.Contains(a.Holders, f.Node)
	}) {
		return false
	}
	text := strings.ToLower(f.Text)
	return text == "" || strings.Contains(strings.ToLower(o.Object), text) ||
		slices.ContainsFunc(o.Addresses, func(a ObjectAddress) bool { return strings.Contains(a.Address, text) })
}

// summaries returns the summaries of all objects; they are computed once.
func (c *Cluster) summaries() []Object {
	c.once.Do(func() {
		for _, e := range c.snap.EgressIPs {
			conditions, problems := c.egressIPState(e)
			o := shortened(kindEgressIP, e.Name, conditions, problems)
			decoded := egressip.Decode(e)
			for _, p := range c.placed[e.Name].Placements {
				a := ObjectAddress{Address: p.Text, Node: decoded.Items[p.Addr], Holders: decoded.Holders[p.Addr]}
				if p.Node != a.Node {
					a.Next = p.Node
				}
				o.Addresses = append(o.Addresses, a)
			}
			c.objectsInShort = append(c.objectsInShort, o)
		}
		for _, eg := range c.snap.EgressServices {
			key := eg.Namespace + "/" + eg.Name
			conditions, problems := c.serviceState(key)
			o := shortened(kindEgressService, key, conditions, problems)
			o.Addresses = c.serviceAddresses(key)
			c.objectsInShort = append(c.objectsInShort, o)
		}
		for _, r := range c.snap.Routes {
			conditions, problems := conditionsOf(kindRoute+"/"+r.Name, r.Generation, r.Status.Conditions)
			c.objectsInShort = append(c.objectsInShort, shortened(kindRoute, r.Name, conditions, problems))
		}
		slices.SortStableFunc(c.objectsInShort, func(a, b Object) int {
			return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), cmp.Compare(a.Object, b.Object))
		})
	})
	return c.objectsInShort
}

// countStates counts the objects of a feature by state, omitting states without objects.
func (c *Cluster) countStates(feature string) []StateCount {
	var all []StateCount
	for _, s := range states {
		n := 0
		for _, o := range c.summaries() {
			if o.Feature == feature && o.State == s {
				n++
			}
		}
		if n > 0 {
			all = append(all, StateCount{s, n})
		}
	}
	return all
}

// serviceAddresses returns the addresses of an EgressService with its host.
func (c *Cluster) serviceAddresses(key string) []ObjectAddress {
	s := c.services[key]
	host, programmed := c.serving(key)
	at := ObjectAddress{Node: s.Host}
	if host != s.Host {
		at.Next = host
	}
	switch {
	case programmed:
		at.Holders = []string{host}
	case s.Ack.Host != "" && !s.PerNode:
		at.Holders = []string{s.Ack.Host}
	}
	addrs := s.Ingress
	if s.PerNode || len(addrs) == 0 {
		addrs = []netip.Addr{{}} // the host has no address
	}
	var all []ObjectAddress
	for _, a := range addrs {
		if at.Address = ""; a.IsValid() {
			at.Address = a.String()
		}
		if at.Address != "" || at.Node != "" || at.Next != "" {
			all = append(all, at)
		}
	}
	return all
}

// shortened summarizes an object from its conditions and problems.
func shortened(kind, name string, all []Condition, problems []Problem) Object {
	o := Object{Object: kind + "/" + name, Feature: kind, State: StateInPlace, Problems: problems}
	unassigned := slices.ContainsFunc(all, func(c Condition) bool {
		return c.Type == conditions.Assigned && c.Status == string(metav1.ConditionFalse)
	})
	switch {
	case unassigned:
		o.State = StateUnassigned
	case len(problems) > 0 && !slices.ContainsFunc(problems, func(p Problem) bool { return !p.passing() }):
		o.State = StateUnderWay
	case len(problems) > 0:
		o.State = StateProblem
	}
	for _, p := range problems {
		if p.Since != nil && (o.Since == nil || p.Since.Before(o.Since)) {
			o.Since = p.Since
		}
	}
	return o
}

// passing reports whether a problem goes away once the master and the nodes
// have carried out the plan.
func (p Problem) passing() bool {
	switch p.Reason {
	case ReasonWaiting, ReasonNotPlanned, ReasonNoStatus, ReasonStale, ReasonLabel:
		return true
	}
	return strings.HasPrefix(p.Reason, "WaitingFor")
}
