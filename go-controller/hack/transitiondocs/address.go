package main

import (
	"fmt"
	"net/netip"
	"strings"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// Names in the situations passed to the planners.
const (
	this    = "this"
	another = "another"
)

var address = netip.MustParseAddr("192.0.2.1")

// items are the ways in which status.items can name a node for an address.
var items = []struct {
	text       string
	node, from string
}{
	{"no item", "", ""},
	{"another node", another, ""},
	{"another node, from this one", another, this},
	{"this node, from another one", this, another},
	{"this node", this, ""},
}

// addressOnNode writes the table of the states of an address on a node.
func addressOnNode(b *strings.Builder) {
	b.WriteString(`## An egress address on a node

What the address becomes on "this node", by what ` + "`status.items`" + ` say and by who has it in ` + "`status.programmed`" + `. A node
answers for an address that is held or retained, and for no other one.

`)
	head(b, "items name", "this node does not answer, nobody else does", "this node does not answer, another one does", "this node answers")
	for _, i := range items {
		cells := []string{i.text}
		for _, has := range []struct{ this, another bool }{{false, false}, {false, true}, {true, false}} {
			cells = append(cells, next(i.node, i.from, has.this, has.another))
		}
		row(b, cells...)
	}
	b.WriteString(`
A node says that it is prepared (` + "`awaiting`" + `) where the items name it, from another one, whether it answers already or not.

`)
	diagram(b)
}

// diagram draws the transitions between states.
func diagram(b *strings.Builder) {
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> released\n")
	for s := egressip.Released; s <= egressip.Retained; s++ {
		for t := egressip.Released; t <= egressip.Retained; t++ {
			var causes []string
			for _, i := range items {
				if s == t {
					continue
				}
				alone, beside := next(i.node, i.from, s.Answers(), false), next(i.node, i.from, s.Answers(), true)
				switch {
				case alone == t.String() && beside == t.String():
					causes = append(causes, i.text)
				case alone == t.String():
					causes = append(causes, i.text+", nobody has it")
				case beside == t.String():
					causes = append(causes, i.text+", another one has it")
				}
			}
			if len(causes) > 0 {
				fmt.Fprintf(b, "    %s --> %s: %s\n", s, t, strings.Join(causes, "<br>"))
			}
		}
	}
	b.WriteString("```\n\n")
}

// next returns the next state of an address on this node.
func next(node, from string, thisHas, anotherHas bool) string {
	status := v1.EgressIPStatus{}
	if node != "" {
		status.Items = []v1.EgressIPStatusItem{{EgressIP: address.String(), Node: node, From: from}}
	}
	for name, has := range map[string]bool{this: thisHas, another: anotherHas} {
		if has {
			status.Programmed = append(status.Programmed, v1.ProgrammedStatus{Node: name, EgressIPs: []string{address.String()}})
		}
	}
	return egressip.Next(thisHas, status, this, address).String()
}
