package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Status is the answer about the cluster as a whole.
type Status struct {
	Header   `json:",inline"`
	Nodes    []NodeStatus    `json:"nodes"`
	Features []FeatureStatus `json:"features"`
	// Moves are the moves in progress between nodes, Drains the nodes that are to hand over
	// their egress addresses and EgressServices.
	Moves  []Transfer `json:"moves,omitempty"`
	Drains []Drain    `json:"drains,omitempty"`
	// Versions are the images that the pods of ovnkube run.
	Versions []Version `json:"versions,omitempty"`
	// Problems are the deviations from the plan, the oldest first.
	Problems []Problem `json:"problems,omitempty"`
}

// NodeStatus is a node with the numbers of its egress addresses.
type NodeStatus struct {
	NodeState `json:",inline"`
	// Planned is the number of EgressIP addresses that it is to have, Held the number that it reports
	// to have.
	Planned int `json:"planned"`
	Held    int `json:"held"`
	// Hosts is the number of EgressServices planned for it as host.
	Hosts int `json:"hosts"`
	// Room is how many more addresses it could take; absent if it can take none.
	Room []Room `json:"room,omitempty"`
}

// FeatureStatus is a feature with the numbers of its objects.
type FeatureStatus struct {
	// Feature is the kind of its objects.
	Feature string `json:"feature"`
	Enabled bool   `json:"enabled"`
	Objects int    `json:"objects"`
	// States are the numbers of objects by state.
	States []StateCount `json:"states,omitempty"`
	// Conditions are the numbers of objects by condition.
	Conditions []ConditionCount `json:"conditions,omitempty"`
}

// ConditionCount counts the objects with a condition.
type ConditionCount struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Objects int    `json:"objects"`
}

// Status returns the state of the egress features of the cluster.
func (c *Cluster) Status() Status {
	header, problems := c.header(KindStatus)
	out := Status{Header: header, Nodes: []NodeStatus{}, Moves: c.moves(), Drains: c.drains(), Versions: c.versions()}
	held := map[string]int{}
	for _, e := range c.decoded {
		for _, nodes := range e.Holders {
			for _, n := range nodes {
				held[n]++
			}
		}
	}
	rooms := c.rooms()
	for _, n := range c.candidates() {
		s := NodeStatus{NodeState: c.state(n), Planned: len(c.index.held[n.Name]), Held: held[n.Name], Hosts: len(c.index.hosted[n.Name]),
			Room: rooms.room(n.Name)}
		out.Nodes = append(out.Nodes, s)
		problems = append(problems, notReadyProblem(n, s.NodeState)...)
		problems = append(problems, c.unreachableProblem(s.NodeState)...)
	}
	problems = append(problems, c.orphanLabels()...)
	feature := func(kind string, enabled bool, objects int, state func(i int) ([]Condition, []Problem)) {
		f := FeatureStatus{Feature: kind, Enabled: enabled, Objects: objects}
		counts := map[ConditionCount]int{}
		for i := range objects {
			conditions, bad := state(i)
			problems = append(problems, bad...)
			for _, has := range conditions {
				counts[ConditionCount{Type: has.Type, Status: has.Status, Reason: has.Reason}]++
			}
		}
		for _, count := range slices.SortedFunc(maps.Keys(counts), ConditionCount.compare) {
			n := counts[count]
			count.Objects = n
			f.Conditions = append(f.Conditions, count)
		}
		f.States = c.countStates(kind)
		out.Features = append(out.Features, f)
	}
	s := c.snap.Settings
	feature(kindEgressIP, s.EgressIP, len(c.snap.EgressIPs), func(i int) ([]Condition, []Problem) { return c.egressIPState(c.snap.EgressIPs[i]) })
	feature(kindEgressService, s.EgressService, len(c.snap.EgressServices), func(i int) ([]Condition, []Problem) {
		return c.serviceState(c.snap.EgressServices[i].Namespace + "/" + c.snap.EgressServices[i].Name)
	})
	feature(kindRoute, s.ExternalGateways, len(c.snap.Routes), func(i int) ([]Condition, []Problem) {
		r := c.snap.Routes[i]
		return conditionsOf(kindRoute+"/"+r.Name, r.Generation, r.Status.Conditions)
	})
	for _, ns := range c.snap.Namespaces {
		problems = append(problems, c.gatewaysInUse(ns)...)
	}
	for key := range c.routes.Refused { // sorted below
		problems = append(problems, c.refusedGateways(key)...)
	}
	for _, l := range c.leftovers() {
		problems = append(problems, l.problem)
	}
	slices.SortStableFunc(problems, Problem.compare)
	out.Problems = problems
	out.InPlace = len(problems) == 0
	out.Notes = append(slices.Clone(out.Notes), c.reachabilityNotes()...)
	return out
}

func (c ConditionCount) compare(o ConditionCount) int {
	return cmp.Or(cmp.Compare(c.Type, o.Type), -cmp.Compare(c.Status, o.Status), cmp.Compare(c.Reason, o.Reason))
}

// compare sorts problems by their start, those without one last.
func (p Problem) compare(o Problem) int {
	switch {
	case (p.Since == nil) != (o.Since == nil):
		if p.Since != nil {
			return -1
		}
		return 1
	case p.Since != nil && !p.Since.Equal(o.Since):
		return p.Since.Compare(o.Since.Time)
	}
	return cmp.Or(cmp.Compare(p.Object, o.Object), cmp.Compare(p.Reason, o.Reason), cmp.Compare(p.Message, o.Message))
}

// Same reports whether two answers are equal, ignoring the times of the questions.
func (s Status) Same(o Status) bool {
	for _, h := range []*Header{&s.Header, &o.Header} {
		h.AsOf, h.MasterRenewed, h.ReachabilityAsOf = Header{}.AsOf, nil, nil
	}
	return equality.Semantic.DeepEqual(s, o)
}

// Text writes the answer as text for people.
func (s Status) Text(w io.Writer) {
	now := s.AsOf.Time
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tSTATE\tREACHABLE\tASSIGNABLE\tADDRESSES\tHELD\tROOM\tHOST OF")
	for _, n := range s.Nodes {
		assignable := "no"
		if n.EgressAssignable {
			assignable = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%d\n", n.Node, n.words(), n.Reachability.cell(now), assignable, n.Planned, n.Held, roomText(n.Room), n.Hosts)
	}
	_ = table.Flush() // a failing writer also fails for the lines below
	for _, f := range s.Features {
		if !f.Enabled {
			fmt.Fprintf(w, "\n%s: not enabled\n", f.Feature)
			continue
		}
		fmt.Fprintf(w, "\n%s: %d\n", f.Feature, f.Objects)
		for _, c := range f.Conditions {
			fmt.Fprintf(w, "  %6d  %s %s (%s)\n", c.Objects, c.Type, c.Status, c.Reason)
		}
	}
	versionLines(w, s.Versions)
	s.progress(w, now)
	if len(s.Problems) > 0 {
		fmt.Fprintln(w)
	}
	problems(w, "", s.Problems, now)
	s.Header.text(w)
}
