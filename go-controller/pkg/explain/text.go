package explain

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Text writes the answer as text for people.
func (p Pod) Text(w io.Writer) {
	fmt.Fprintf(w, "Pod %s", p.Pod)
	if p.Node != "" {
		fmt.Fprintf(w, " on node %s", p.Node)
	}
	if p.To != "" {
		fmt.Fprintf(w, ", to %s", p.To)
	}
	fmt.Fprintln(w)
	for _, f := range p.Families {
		f.text(w, p.AsOf.Time)
	}
	problems(w, "", p.Problems, p.AsOf.Time)
	p.Header.text(w)
}

func (f Family) text(w io.Writer, now time.Time) {
	fmt.Fprintf(w, "\n%s", f.Family)
	if f.Address != "" {
		fmt.Fprintf(w, " %s", f.Address)
	}
	fmt.Fprintf(w, ": %s\n", headlines[f.Outcome])
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "  %-10s %s\n", name, value)
		}
	}
	line("decided by", f.By)
	line("why", f.Why)
	for _, s := range f.Sources {
		line("source", s.text())
	}
	for _, g := range f.Gateways {
		text := g.Address
		if g.Pod != "" {
			text += ", pod " + g.Pod
		}
		if g.BFD {
			text += ", watched by BFD"
		}
		line("gateway", text)
	}
	for _, s := range f.Selected {
		mark := "-"
		if s.Wins {
			mark = "*"
		}
		fmt.Fprintf(w, "  %s %s: %s\n", mark, s.Object, s.Why)
		for _, c := range s.Conditions {
			fmt.Fprintf(w, "      %s %s (%s)%s\n", c.Type, c.Status, c.Reason, since(&c.Since, now))
		}
	}
	for _, i := range f.ImplementedBy {
		where := "northbound"
		if i.Node != "" {
			where = "node " + i.Node
		}
		fmt.Fprintf(w, "  = %s: %s\n", where, i.What)
	}
	problems(w, "  ", f.Problems, now)
}

// headlines describe the outcomes.
var headlines = map[Outcome]string{
	OutcomeNode:          "leaves with the address of its node",
	OutcomeEgressIP:      "leaves with the address of an EgressIP",
	OutcomeEgressService: "leaves as an EgressService says",
	OutcomeGateways:      "leaves through external gateways",
	OutcomeHeld:          "is held back",
	OutcomeDropped:       "is dropped",
	OutcomeUnknown:       "not in force yet",
	OutcomeInside:        "does not leave the cluster as egress traffic",
	OutcomeLost:          "is lost with its node",
	OutcomeNone:          "sends nothing",
}

func (s Source) text() string {
	text := s.Address
	if text == "" {
		text = "the address of the interface that it leaves by"
	}
	if s.Node != "" {
		text += " from node " + s.Node
	}
	switch {
	case s.Secondary:
		text += ", on the other network " + s.Network
	case s.Network != "":
		text += ", network " + s.Network
	}
	return text
}

func problems(w io.Writer, indent string, all []Problem, now time.Time) {
	for _, p := range all {
		fmt.Fprintf(w, "%s! %s %s: %s%s\n", indent, p.Object, p.Reason, p.Message, since(p.Since, now))
	}
}

// since formats when something began, and how long ago that is.
func since(t *metav1.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return fmt.Sprintf(", since %s (%s)", t.UTC().Format(time.RFC3339), now.Sub(t.Time).Round(time.Second))
}

func (h Header) text(w io.Writer) { h.Closing(w) }

// Closing writes the end of an answer: whether everything is in place, and the data it is based on.
func (h Header) Closing(w io.Writer) {
	fmt.Fprintln(w)
	if h.InPlace {
		fmt.Fprintln(w, "All of it is in place.")
	} else {
		fmt.Fprintln(w, "Not everything is in place: see the lines with \"!\".")
	}
	h.facts(w)
}

// facts writes the data that the answer is based on.
func (h Header) facts(w io.Writer) {
	fmt.Fprintf(w, "As of %s", h.AsOf.UTC().Format(time.RFC3339))
	if h.MasterRenewed != nil {
		fmt.Fprintf(w, "; the master renewed its lease %s before", h.AsOf.Sub(h.MasterRenewed.Time).Round(time.Second))
	}
	if h.ReachabilityAsOf != nil {
		fmt.Fprintf(w, "; reachability as of %s before", h.AsOf.Sub(h.ReachabilityAsOf.Time).Round(time.Second))
	}
	fmt.Fprintln(w, ".")
	for _, n := range h.Notes {
		fmt.Fprintf(w, "Note: %s.\n", strings.TrimSuffix(n, "."))
	}
}
