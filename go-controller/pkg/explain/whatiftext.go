package explain

import (
	"fmt"
	"io"
	"strings"

	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
)

// Text writes the answer as text for people.
func (a WhatIf) Text(w io.Writer) {
	for i, change := range a.Changes {
		word := "What if:"
		if i > 0 {
			word = "    and:"
		}
		fmt.Fprintln(w, word, change)
	}
	title := func(what string, n int) { fmt.Fprintf(w, "\n%s: %d\n", what, n) }
	title("Addresses and hosts that move", len(a.Moves))
	for _, m := range a.Moves {
		fmt.Fprintf(w, "  %s\n", m.text())
	}
	title("Pods whose traffic leaves differently", len(a.Pods))
	for i, p := range a.Pods {
		if i == 0 || a.Pods[i-1].Pod != p.Pod {
			fmt.Fprintf(w, "  %s", p.Pod)
			if p.Node != "" {
				fmt.Fprintf(w, " on node %s", p.Node)
			}
			fmt.Fprintln(w)
		}
		p.text(w)
	}
	title("Conditions that turn", len(a.Conditions))
	for _, c := range a.Conditions {
		from := ""
		if c.From != nil {
			from = fmt.Sprintf("%s (%s) -> ", c.From.Status, c.From.Reason)
		}
		fmt.Fprintf(w, "  %s %s: %s%s (%s): %s\n", c.Object, c.Type, from, c.To.Status, c.To.Reason, c.To.Message)
	}
	title("Rows that change in the northbound database", len(a.Rows))
	for i, r := range a.Rows {
		if i == 0 || a.Rows[i-1].Owner != r.Owner {
			fmt.Fprintf(w, "  %s\n", r.Owner)
		}
		sign := "+"
		if r.Change == rowRemoved {
			sign = "-"
		}
		fmt.Fprintf(w, "    %s %s\n", sign, r.Row.Row)
	}
	if len(a.Problems) > 0 {
		fmt.Fprintln(w)
	}
	problems(w, "", a.Problems, a.AsOf.Time)
	fmt.Fprintln(w)
	if a.InPlace {
		fmt.Fprintln(w, "Everything that is in place stays in place. Nothing has been changed.")
	} else {
		fmt.Fprintln(w, "Not everything that is in place will be: see the lines with \"!\". Nothing has been changed.")
	}
	a.facts(w)
}

func (m Move) text() string {
	name := func(node string) string {
		switch node {
		case "":
			return "no node"
		case egressservicev1.HostAll:
			return "every node"
		}
		return node
	}
	what := m.Object
	if m.Address != "" {
		what = m.Address + " of " + what
	}
	return fmt.Sprintf("%s: %s -> %s (%s)", what, name(m.From), name(m.To), m.Why)
}

func (p PodChange) text(w io.Writer) {
	if p.From != nil {
		fmt.Fprintf(w, "      %s - %s\n", p.Family, p.From.text())
	}
	if p.To == nil {
		return
	}
	effects := []string{}
	switch {
	case p.From == nil || p.To.Outcome == OutcomeLost:
	case p.To.noEgress():
		effects = append(effects, "without service until that ends")
	case p.Pause != nil && p.Pause.Duration > 0:
		effects = append(effects, "without service for "+p.Pause.Duration.String()+" at most")
	}
	switch p.Connections {
	case ConnectionsKept:
		effects = append(effects, "open connections go on")
	case ConnectionsBroken:
		effects = append(effects, "open connections break")
	}
	text := p.To.text()
	if len(effects) > 0 {
		text += "; " + strings.Join(effects, ", ")
	}
	fmt.Fprintf(w, "      %s + %s\n", p.Family, text)
}

func (o *Way) text() string {
	text := headlines[o.Outcome]
	if o.By != "" {
		text += ", by " + o.By
	}
	for i, s := range o.Sources {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		text += separator + s.text()
	}
	for i, g := range o.Gateways {
		separator := ", "
		if i == 0 {
			separator = "; gateways "
		}
		text += separator + g.Address
	}
	return text
}
