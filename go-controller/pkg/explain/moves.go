package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
)

// Transfer is a move in progress between two nodes.
type Transfer struct {
	// From is the current node; absent if there is none, or if it died.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Addresses is the number of EgressIP addresses, Hosts the number of EgressServices.
	Addresses int `json:"addresses,omitempty"`
	Hosts     int `json:"hosts,omitempty"`
	// Since is when the first of them ceased to be programmed, if known.
	Since *metav1.Time `json:"since,omitempty"`
}

// Drain is a node that is to hand over its egress addresses and EgressServices.
type Drain struct {
	Node string `json:"node"`
	// Addresses and Hosts are what the node still has, as in Transfer.
	Addresses int `json:"addresses"`
	Hosts     int `json:"hosts"`
}

// from returns the nodes that an address is to leave and its next node; empty
// if it is not moving.
func (a ObjectAddress) from() (nodes []string, to string) {
	to = cmp.Or(a.Next, a.Node)
	for _, n := range append(slices.Clone(a.Holders), a.Node) {
		if n != to && n != "" && !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	switch {
	case to == "" || to == egressservicev1.HostAll:
		return nil, ""
	case len(nodes) == 0 && slices.Contains(a.Holders, to):
		return nil, ""
	case len(nodes) == 0:
		nodes = []string{""}
	}
	return nodes, to
}

// moves returns the moves in progress, by nodes.
func (c *Cluster) moves() []Transfer {
	type way struct{ from, to string }
	all := map[way]*Transfer{}
	for _, o := range c.summaries() {
		ways := map[way]int{}
		for _, a := range o.Addresses {
			nodes, to := a.from()
			for _, from := range nodes {
				ways[way{from, to}]++
			}
		}
		for w, addresses := range ways {
			m := all[w]
			if m == nil {
				m = &Transfer{From: w.from, To: w.to}
				all[w] = m
			}
			if o.Feature == kindEgressIP {
				m.Addresses += addresses
			} else {
				m.Hosts++
			}
			if o.Since != nil && (m.Since == nil || o.Since.Before(m.Since)) {
				m.Since = o.Since
			}
		}
	}
	var out []Transfer
	for _, w := range slices.SortedFunc(maps.Keys(all), func(a, b way) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) }) {
		out = append(out, *all[w])
	}
	return out
}

// drains returns the nodes that are to hand over their egress addresses and EgressServices.
func (c *Cluster) drains() []Drain {
	left := map[string]*Drain{}
	var out []Drain
	for _, n := range c.candidates() {
		if n.Draining {
			left[n.Name] = &Drain{Node: n.Name}
		}
	}
	for _, o := range c.summaries() {
		on := map[string]int{}
		for _, a := range o.Addresses {
			for _, n := range slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(a.Holders), a.Node)))) {
				on[n]++
			}
		}
		for n, addresses := range on {
			switch d := left[n]; {
			case d == nil:
			case o.Feature == kindEgressIP:
				d.Addresses += addresses
			default:
				d.Hosts++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		out = append(out, *left[name])
	}
	return out
}

// progress writes the operations in progress.
func (s Status) progress(w io.Writer, now time.Time) {
	if len(s.Moves)+len(s.Drains) > 0 {
		fmt.Fprintln(w, "\nUnder way:")
	}
	for _, m := range s.Moves {
		way := "to node " + m.To
		if m.From != "" {
			way = "from node " + m.From + " " + way
		}
		fmt.Fprintf(w, "  %s: %s%s\n", way, amount(m.Addresses, m.Hosts), since(m.Since, now))
	}
	for _, d := range s.Drains {
		fmt.Fprintf(w, "  node %s is draining: %s left\n", d.Node, amount(d.Addresses, d.Hosts))
	}
}

func amount(addresses, hosts int) string {
	switch {
	case hosts == 0:
		return fmt.Sprintf("EgressIP addresses: %d", addresses)
	case addresses == 0:
		return fmt.Sprintf("EgressServices: %d", hosts)
	}
	return fmt.Sprintf("EgressIP addresses: %d, EgressServices: %d", addresses, hosts)
}
