package trace

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

// Kind is the kind of the answer.
const Kind = "Trace"

// Trace is the answer: the paths of a packet, and the plan.
type Trace struct {
	explain.Header `json:",inline"`
	Pod            string `json:"pod"`
	Node           string `json:"node"`
	To             string `json:"to"`
	Protocol       string `json:"protocol"`
	Planned        Plan   `json:"planned"`
	// Paths are the paths that a connection may take; if OVN has several next hops, each connection takes one.
	Paths []Path `json:"paths"`
	// Probe is the result of sending real packets, if that was requested.
	Probe    *Probe            `json:"probe,omitempty"`
	Problems []explain.Problem `json:"problems,omitempty"`
}

// Plan is what package explain says.
type Plan struct {
	Outcome explain.Outcome  `json:"outcome"`
	By      string           `json:"by,omitempty"`
	Why     string           `json:"why"`
	Sources []explain.Source `json:"sources,omitempty"`
}

// Trace returns the answer, once Next returns no more questions.
func (t *Tracer) Trace() Trace {
	f := t.family
	out := Trace{Header: t.plan.Header, Pod: t.plan.Pod, Node: t.plan.Node, To: t.to.String(), Protocol: t.protocol,
		Planned: Plan{f.Outcome, f.By, f.Why, f.Sources}}
	out.Kind = Kind
	out.Problems = slices.Concat(t.plan.Problems, f.Problems)
	out.InPlace = len(out.Problems) == 0
	for _, p := range t.paths {
		t.compare(p)
		out.InPlace = out.InPlace && p.AsPlanned
		out.Paths = append(out.Paths, *p)
	}
	if t.probe != nil {
		t.judge(t.probe)
		out.Probe, out.InPlace = t.probe, out.InPlace && t.probe.AsPlanned
	}
	return out
}

// compare checks whether a path is as planned.
func (t *Tracer) compare(p *Path) {
	f := t.family
	reaches := p.End == EndLeaves || p.End == EndArrives
	expected := ""
	for _, s := range f.Sources {
		if plannedAs(s, p.Source, p.Node) || p.End == EndArrives && plannedAs(s, p.Source, s.Node) {
			expected = ""
			break
		}
		expected = strings.TrimPrefix(expected+" or "+sourceText(s), " or ")
	}
	switch {
	case !reaches:
	case f.Outcome == explain.OutcomeDropped || f.Outcome == explain.OutcomeHeld:
		p.problem(t.by(), ReasonDiffers, "it gets through, and nothing of this pod may: "+f.Why)
	case expected != "":
		p.problem(t.by(), ReasonDiffers, fmt.Sprintf("the other side sees %s from node %s; planned: %s", p.Source, p.Node, expected))
		for _, part := range f.ImplementedBy {
			if part.Node == p.Node && !slices.ContainsFunc(p.kernelRules, func(r string) bool { return strings.HasSuffix(part.What, ruleOf(r)) }) {
				p.problem(t.by(), ReasonMissing, "it did not come by what node "+part.Node+" is to have: "+part.What)
			}
		}
	}
	p.AsPlanned = reaches && len(p.Problems) == 0
}

// plannedAs reports whether an address and a node match a planned source.
func plannedAs(s explain.Source, address, node string) bool {
	return (s.Address == "" || s.Address == address) && (s.Node == "" || s.Node == node)
}

// ruleOf returns a rule without the chain name in front of it.
func ruleOf(text string) string {
	_, rule, _ := strings.Cut(text, ": ")
	return rule
}

func sourceText(s explain.Source) string {
	text := s.Address
	if text == "" {
		text = "the address of an interface"
	}
	if s.Node != "" {
		text += " from node " + s.Node
	}
	return text
}

// Text writes the answer as a text diagram.
func (t Trace) Text(w io.Writer) {
	fmt.Fprintf(w, "Pod %s on node %s, %s to %s\n", t.Pod, t.Node, strings.ToUpper(t.Protocol), t.To)
	var planned []string
	for _, s := range t.Planned.Sources {
		planned = append(planned, sourceText(s))
	}
	fmt.Fprintf(w, "Planned: %s", t.Planned.Outcome)
	if t.Planned.By != "" {
		fmt.Fprintf(w, " by %s", t.Planned.By)
	}
	if len(planned) > 0 {
		fmt.Fprintf(w, ", as %s", strings.Join(planned, " or "))
	}
	fmt.Fprintln(w)
	for i, p := range t.Paths {
		fmt.Fprintln(w)
		if len(t.Paths) > 1 {
			fmt.Fprintf(w, "Way %d of %d\n", i+1, len(t.Paths))
		}
		p.text(w)
	}
	if t.Probe != nil {
		fmt.Fprintln(w)
		t.Probe.text(w, t.Protocol)
	}
	if len(t.Problems) > 0 {
		fmt.Fprintln(w)
	}
	problems(w, "", t.Problems)
	t.Header.Closing(w)
}

// titles describe the kinds of hops.
var titles = map[string]string{HopPod: "pod", HopSwitch: "OVN switch", HopRouter: "OVN router", HopKernel: "kernel of", HopBridge: "bridge"}

func (p Path) text(w io.Writer) {
	for _, h := range p.Hops {
		title := titles[h.Kind] + " " + h.Name
		if h.Node != "" && h.Node != h.Name {
			title += " on " + h.Node
		}
		fmt.Fprintf(w, "  o %s\n", title)
		for _, f := range h.Facts {
			fmt.Fprintf(w, "  |   %s\n", f)
		}
		fmt.Fprintln(w, "  |")
	}
	end := map[string]string{EndDropped: "dropped", EndUnknown: "not known from here on"}[p.End]
	switch p.End {
	case EndLeaves:
		end = fmt.Sprintf("leaves node %s by %s with source %s", p.Node, p.By, p.Source)
	case EndArrives:
		end = fmt.Sprintf("arrives at %s on node %s with source %s", p.By, p.Node, p.Source)
	}
	ending(w, end, p.AsPlanned, p.Problems, p.Notes)
}

// ending writes how a path ends, with its problems and notes.
func ending(w io.Writer, end string, asPlanned bool, all []explain.Problem, notes []string) {
	mark := "x"
	if asPlanned {
		mark, end = ">", end+": as planned"
	}
	fmt.Fprintf(w, "  %s %s\n", mark, end)
	problems(w, "  ", all)
	for _, n := range notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
}

func problems(w io.Writer, indent string, all []explain.Problem) {
	for _, p := range all {
		fmt.Fprintf(w, "%s! %s %s: %s\n", indent, p.Object, p.Reason, p.Message)
	}
}
