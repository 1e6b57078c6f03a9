package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

var (
	podAddr  = netip.MustParseAddr("10.244.0.5")
	nodeA    = egressip.Placement{Address: egressip.Address{Addr: address}, Node: "A", Primary: true, NextHop: netip.MustParseAddr("100.64.0.2")}
	nodeB    = egressip.Placement{Address: egressip.Address{Addr: address}, Node: "B", Primary: true, NextHop: netip.MustParseAddr("100.64.0.3")}
	selected = egressip.EgressIP{Key: "e", Addresses: []egressip.Address{{Addr: address}}}
)

// event is something that happens to a pod's traffic.
type event struct {
	text  string
	apply func(*egressip.Steering)
}

// chassis returns the events that follow from what was written: chassis apply it.
func chassis(s egressip.Steering) []event {
	var events []event
	for _, site := range slices.SortedFunc(maps.Keys(s.Now.NATs), func(a, b egressip.Site) int { return strings.Compare(a.Node, b.Node) }) {
		if s.Applied.NATs[site] != s.Now.NATs[site] {
			events = append(events, event{site.Node + " translates", func(s *egressip.Steering) { s.Applied.NATs[site] = s.Now.NATs[site] }})
		}
	}
	if !s.Applied.SamePolicies(s.Now) {
		events = append(events, event{"the pod's chassis has the policy", func(s *egressip.Steering) { s.Applied.Policies = s.Now.Clone().Policies }})
	}
	return events
}

// scenario is the initial situation of a table of a pod's traffic, and the events that may happen, in any order, in
// addition to those of chassis.
type scenario struct {
	title, text string
	begin       egressip.Steering
	events      func(egressip.Steering) []event
}

// answers returns the event that a node acknowledges the address assigned to it.
func answers(s egressip.Steering) []event {
	if len(s.Paths) == 0 || s.Paths[0].Answered {
		return nil
	}
	return []event{{s.Paths[0].Node + " answers", func(s *egressip.Steering) {
		s.Paths = []egressip.Path{{Placement: s.Paths[0].Placement, Answered: true, Programmed: true}}
	}}}
}

func scenarios() []scenario {
	fresh := egressip.Steering{EgressIP: selected, Pod: egressip.Pod{Key: "ns/pod", Addrs: []netip.Addr{podAddr}},
		Now: egressip.NewState(), Applied: egressip.NewState(), Owned: func(string, netip.Addr) bool { return true }}
	pending := fresh
	pending.Pod.Pending, pending.Paths = true, []egressip.Path{{Placement: nodeA}}
	running := fresh
	running.Paths = []egressip.Path{{Placement: nodeA, Answered: true, Programmed: true}}
	running.Now, _ = running.Settled()
	running.Applied = running.Now.Clone()
	chosen := fresh
	chosen.Paths = running.Paths
	moved := running
	moved.Paths = []egressip.Path{{Placement: nodeB, Now: nodeA}}
	lost := running
	lost.Paths = []egressip.Path{{Placement: nodeB}}
	left := running
	left.EgressIP, left.Paths = egressip.EgressIP{}, nil
	nobody, drop := running, running
	nobody.Paths, drop.Paths = nil, nil
	drop.EgressIP.DropWhenUnavailable = true
	return []scenario{
		{"A pod starts", "It has the annotation `egress-pending`; no node answers for the address yet.", pending,
			func(s egressip.Steering) []event {
				events := answers(s)
				switch {
				case gate(s) == mayStart:
					events = append(events, event{"the annotation goes", func(s *egressip.Steering) { s.Pod.Pending, s.Pod.Late = false, false }})
				case s.Pod.Pending:
					events = append(events, event{"5 seconds have passed", func(s *egressip.Steering) { s.Pod.Pending, s.Pod.Late = false, true }})
				}
				return events
			}},
		{"A running pod is selected", "A has the address.", chosen, answers},
		{"The address moves", "B is to hold the address, and A retains it until then.", moved, answers},
		{"The node is lost", "A is dead, and B is to hold the address.", lost, answers},
		{"No node can hold the address", "`onUnavailable` is not set: the pod leaves as if there were no EgressIP.", nobody, answers},
		{"No node can hold the address, onUnavailable: Drop", "What the pod sends is dropped.", drop, answers},
		{"The pod is not selected any more", "", left, answers},
	}
}

// podTraffic writes the tables for the traffic of a pod with one address.
func podTraffic(b *strings.Builder) error {
	b.WriteString(`## The traffic of a pod

A pod with one address, an EgressIP with one address on the nodes' network, and nodes A and B. Each row is a situation and what
the database has as soon as it is planned; the last column has all that can happen next, in any order, and the row that it leads to.
What is in **bold** is in force on the chassis that it is for. A pod that is about to start sends when its annotation has gone,
which happens when it "may start".

`)
	for _, s := range scenarios() {
		if err := s.write(b); err != nil {
			return err
		}
	}
	return nil
}

// maxSituations limits the size of a table: planners that do not terminate are a defect.
const maxSituations = 60

// situation is one row of a table.
type situation struct {
	egressip.Steering
	next []string // possible events, and the numbers of the rows they lead to
}

// explore returns all reachable situations of a scenario.
func (sc scenario) explore() ([]situation, error) {
	known := map[string]int{}
	var all []situation
	add := func(s egressip.Steering) int {
		s.Now = egressip.StateOf(s.Plan().Want.Rows())
		key := fmt.Sprint(policy(s), s.Applied.Policies, translations(s), s.Applied.NATs, s.Paths, s.Pod.Pending, s.Pod.Late)
		if _, ok := known[key]; !ok {
			all = append(all, situation{Steering: s})
			known[key] = len(all)
		}
		return known[key]
	}
	add(sc.begin)
	for i := 0; i < len(all); i++ {
		if len(all) > maxSituations {
			return nil, fmt.Errorf("%s: more than %d situations", sc.title, maxSituations)
		}
		s := all[i].Steering
		for _, e := range append(chassis(s), sc.events(s)...) {
			after := s
			after.Applied = s.Applied.Clone()
			e.apply(&after)
			next := fmt.Sprintf("%s: %d", e.text, add(after))
			all[i].next = append(all[i].next, next)
		}
	}
	return all, nil
}

// write writes the table of a scenario.
func (sc scenario) write(b *strings.Builder) error {
	all, err := sc.explore()
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "### %s\n\n", sc.title)
	if sc.text != "" {
		fmt.Fprintf(b, "%s\n\n", sc.text)
	}
	head(b, "", "policy leads to", "translations", "pod", "next")
	for i, s := range all {
		next := strings.Join(s.next, "; ")
		if next == "" {
			next = "-"
		}
		row(b, strconv.Itoa(i+1), policy(s.Steering), translations(s.Steering), gate(s.Steering), next)
	}
	b.WriteString("\n")
	return nil
}

// policy describes where the policy in the database leads, and where that of the pod's chassis leads if it differs.
func policy(s egressip.Steering) string {
	now, force := leads(s.Now), leads(s.Applied)
	if now == force {
		return "**" + now + "**"
	}
	return now + ", **" + force + "**"
}

func leads(s egressip.State) string {
	p, ok := s.Policies[podAddr]
	switch {
	case !ok:
		return "none"
	case len(p.Hops) == 0:
		return "drop"
	}
	var nodes []string
	for _, hop := range p.Hops {
		for _, n := range []egressip.Placement{nodeA, nodeB} {
			if n.NextHop == hop {
				nodes = append(nodes, n.Node)
			}
		}
	}
	return strings.Join(nodes, " and ")
}

// translations describes on which nodes the database translates the pod to the address.
func translations(s egressip.Steering) string {
	var list []string
	for _, n := range []egressip.Placement{nodeA, nodeB} {
		site := egressip.Site{Pod: podAddr, Node: n.Node}
		_, now := s.Now.NATs[site]
		_, force := s.Applied.NATs[site]
		switch {
		case now && force:
			list = append(list, "**"+n.Node+"**")
		case now:
			list = append(list, n.Node)
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// What a pod may do.
const (
	runs     = "runs"
	mayStart = "may start"
	waits    = "waits"
)

// gate returns whether a pod may start; a running pod sends.
func gate(s egressip.Steering) string {
	switch {
	case !s.Pod.Pending && !s.Pod.Late:
		return runs
	case s.Plan().StartGate(s.Pod) != egressip.Blocked:
		return mayStart
	}
	return waits
}
