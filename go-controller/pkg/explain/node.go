package explain

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Node is the answer about a node.
type Node struct {
	Header    `json:",inline"`
	NodeState `json:",inline"`
	// Features are the node's capabilities for each enabled feature.
	Features []NodeFeature `json:"features,omitempty"`
	// Addresses are the egress addresses that it has or is to have.
	Addresses []NodeAddress `json:"addresses,omitempty"`
	// Pods are the numbers of its pods on the pod network, by outcome.
	Pods []PodCount `json:"pods,omitempty"`
	// Gateways are the external gateways of its pods.
	Gateways []GatewayCount `json:"gateways,omitempty"`
	Problems []Problem      `json:"problems,omitempty"`
}

// NodeState is the state of a node that decides whether it can be used.
type NodeState struct {
	Node  string `json:"node"`
	Ready bool   `json:"ready"`
	// Since is when the Ready state of the node last changed.
	Since *metav1.Time `json:"since,omitempty"`
	// EgressAssignable reports whether its label allows it to have addresses of EgressIPs.
	EgressAssignable bool `json:"egressAssignable"`
	Cordoned         bool `json:"cordoned,omitempty"`
	// Draining reports whether it is to hand over its addresses.
	Draining bool `json:"draining,omitempty"`
	// Reachability is the result of the master's probes; absent if unknown.
	Reachability *NodeReachability `json:"reachability,omitempty"`
}

// NodeFeature says whether a node can serve a feature.
type NodeFeature struct {
	// Feature is the kind of its objects.
	Feature string `json:"feature"`
	// Network is the network of the addresses, for EgressIPs.
	Network string `json:"network,omitempty"`
	// Secondary reports whether Network is a secondary network.
	Secondary bool   `json:"secondary,omitempty"`
	Possible  bool   `json:"possible"`
	Why       string `json:"why"`
}

// NodeAddress is an egress address of a node.
type NodeAddress struct {
	Address string `json:"address"`
	// Object is the EgressIP or the EgressService.
	Object string `json:"object"`
	// Planned reports whether the planner assigns it to the node; if not, the node has yet to
	// release it.
	Planned bool `json:"planned"`
	// Programmed reports whether the node acknowledges that it has the address.
	Programmed bool `json:"programmed"`
	// Since is when the condition Programmed of the object became false.
	Since *metav1.Time `json:"since,omitempty"`
}

// PodCount counts pods.
type PodCount struct {
	Family  string  `json:"family"`
	Outcome Outcome `json:"outcome"`
	Pods    int     `json:"pods"`
}

// GatewayCount counts the pods that use an external gateway.
type GatewayCount struct {
	Address string `json:"address"`
	Pods    int    `json:"pods"`
}

// The kinds of objects of the features.
const (
	kindEgressIP      = "EgressIP"
	kindEgressService = "EgressService"
	kindRoute         = "AdminPolicyBasedExternalRoute"
)

// Node explains a node by name.
func (c *Cluster) Node(name string) (Node, error) {
	n, ok := c.nodes[name]
	if !ok {
		return Node{}, fmt.Errorf("node %s: %w", name, ErrNotFound)
	}
	header, problems := c.header(KindNode)
	out := Node{Header: header, NodeState: c.state(n), Features: c.nodeFeatures(n), Addresses: c.nodeAddresses(name), Problems: problems}
	out.Problems = append(out.Problems, notReadyProblem(n, out.NodeState)...)
	out.Problems = append(out.Problems, c.unreachableProblem(out.NodeState)...)
	out.Problems = append(out.Problems, c.nodeProblems(name)...)
	out.Pods, out.Gateways = c.podsOn(name)
	out.InPlace = len(out.Problems) == 0
	out.Notes = append(slices.Clone(out.Notes), c.reachabilityNotes()...)
	return out, nil
}

func (c *Cluster) state(n place.Node) NodeState {
	return NodeState{Node: n.Name, Ready: n.Ready && !n.ReadyUnknown, Since: c.notReadySince(n.Name), EgressAssignable: n.EgressAssignable,
		Cordoned: n.Unschedulable, Draining: n.Draining, Reachability: c.reachability(n.Name)}
}

func notReadyProblem(n place.Node, s NodeState) []Problem {
	if s.Ready {
		return nil
	}
	text := "the node is not Ready: it serves nothing"
	if n.Ready {
		text = "Kubernetes has lost contact with this and most other nodes: the node keeps serving, since it answers probes"
	}
	return []Problem{{Object: "Node/" + s.Node, Reason: ReasonNodeNotReady, Message: text, Since: s.Since}}
}

// nodeFeatures returns a node's capabilities for each feature, according to the planners' objections.
func (c *Cluster) nodeFeatures(n place.Node) []NodeFeature {
	var all []NodeFeature
	add := func(f NodeFeature, why place.Reason, can string) {
		f.Possible, f.Why = why == "", string(why)
		if f.Possible {
			f.Why = can
		}
		all = append(all, f)
	}
	if c.snap.Settings.EgressIP {
		seen := map[netip.Prefix]bool{}
		for i, p := range slices.Concat(n.Primary, n.Host) {
			if p.IsSingleIP() || seen[p.Masked()] {
				continue
			}
			seen[p.Masked()] = true
			f := NodeFeature{Feature: kindEgressIP, Network: p.Masked().String(), Secondary: i >= len(n.Primary)}
			add(f, egressip.Objection(n, egressip.EgressIP{}, p.Addr()), "can take addresses of this network")
		}
		if len(seen) == 0 {
			add(NodeFeature{Feature: kindEgressIP}, "has not published its networks yet", "")
		}
	}
	if c.snap.Settings.EgressService {
		why := egressservice.Objection(n, egressservice.Service{Selector: labels.Everything()})
		add(NodeFeature{Feature: kindEgressService}, why, "can be the host of those whose nodeSelector it matches")
	}
	if c.snap.Settings.ExternalGateways {
		why := place.Reason("")
		if !n.HasGateway() {
			why = "has not published its gateway yet"
		}
		add(NodeFeature{Feature: kindRoute}, why, "routes its own pods")
	}
	return all
}

// nodeAddresses returns the egress addresses that a node has or is to have.
func (c *Cluster) nodeAddresses(name string) []NodeAddress {
	var all []NodeAddress
	for _, e := range c.decoded {
		since := unprogrammed(c.egressIPs[e.Key].Status.Conditions)
		placed := map[netip.Addr]bool{}
		add := func(a netip.Addr, planned bool) {
			held := slices.Contains(e.Holders[a], name)
			at := NodeAddress{Address: a.String(), Object: kindEgressIP + "/" + e.Key, Planned: planned, Programmed: held}
			if planned != held {
				at.Since = since
			}
			all = append(all, at)
		}
		for _, p := range c.placed[e.Key].Placements {
			if p.Node == name {
				placed[p.Addr] = true
				add(p.Addr, true)
			}
		}
		for _, a := range slices.SortedFunc(maps.Keys(e.Holders), netip.Addr.Compare) {
			if slices.Contains(e.Holders[a], name) && !placed[a] {
				add(a, false)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.services)) {
		s, obj := c.services[key], c.objects[key]
		host, programmed := c.serving(key)
		before := host != name && !programmed && s.Ack.Host == name && !s.PerNode
		if host != name && !before {
			continue
		}
		for _, a := range s.Ingress {
			at := NodeAddress{Address: a.String(), Object: kindEgressService + "/" + key, Planned: host == name, Programmed: programmed || before}
			if !programmed {
				at.Since = unprogrammed(obj.Status.Conditions)
			}
			all = append(all, at)
		}
	}
	return all
}

// nodeProblems returns the pending tasks of a node, and the differences between the statuses
// and the plan.
func (c *Cluster) nodeProblems(name string) []Problem {
	var out []Problem
	for _, obj := range c.snap.EgressIPs {
		e := egressip.Decode(obj)
		for _, p := range c.placed[obj.Name].Placements {
			if now := e.Items[p.Addr]; p.Addr.IsValid() && now != p.Node && (now == name || p.Node == name) {
				out = append(out, Problem{Object: kindEgressIP + "/" + obj.Name, Reason: ReasonNotPlanned,
					Message: fmt.Sprintf("%s: the planner says node %q, the status %q", p.Addr, p.Node, now)})
			}
		}
		for _, ack := range c.pendingAcks(obj) {
			if ack.Node == name {
				out = append(out, ack.problem(obj))
			}
		}
	}
	for _, l := range c.leftovers() {
		if l.node == name {
			out = append(out, l.problem)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.services)) {
		if host, _ := c.serving(key); host == name || c.objects[key].Status.Host == name {
			_, problems := c.serviceState(key)
			out = append(out, problems...)
		}
	}
	return append(out, c.strayLabels(name)...)
}

// podsOn counts the pods of a node by outcome, and by gateway.
func (c *Cluster) podsOn(name string) ([]PodCount, []GatewayCount) {
	counts, gateways := map[PodCount]int{}, map[netip.Addr]int{}
	for _, p := range c.snap.Pods {
		if p.Spec.NodeName != name || !kube.NeedsNetwork(p) {
			continue
		}
		answer, err := c.pod(kube.PodKey(p), netip.AddrPort{}, false)
		if err != nil {
			continue // it is counted with the pods
		}
		for _, f := range answer.Families {
			counts[PodCount{Family: f.Family, Outcome: f.Outcome}]++
			for _, g := range f.Gateways {
				if a, err := netip.ParseAddr(g.Address); err == nil {
					gateways[a]++
				}
			}
		}
	}
	var pods []PodCount
	for _, f := range topology.Families {
		for _, outcome := range slices.Sorted(maps.Keys(headlines)) {
			if n := counts[PodCount{Family: f.String(), Outcome: outcome}]; n > 0 {
				pods = append(pods, PodCount{f.String(), outcome, n})
			}
		}
	}
	var used []GatewayCount
	for _, a := range slices.SortedFunc(maps.Keys(gateways), netip.Addr.Compare) {
		used = append(used, GatewayCount{a.String(), gateways[a]})
	}
	return pods, used
}

// Text writes the answer as text for people.
func (n Node) Text(w io.Writer) {
	now := n.AsOf.Time
	fmt.Fprintf(w, "Node %s, %s%s\n", n.NodeState.Node, n.NodeState.words(), since(n.Since, now))
	if text := n.Reachability.text(now); text != "" {
		fmt.Fprintf(w, "  %s\n", text)
	}
	for _, f := range n.Features {
		mark, what := "-", f.Feature
		if f.Possible {
			mark = "+"
		}
		if f.Network != "" {
			what += ", network " + f.Network
		}
		if f.Secondary {
			what += ", another one than that of the nodes"
		}
		fmt.Fprintf(w, "  %s %s: %s\n", mark, what, f.Why)
	}
	fmt.Fprintf(w, "\nEgress addresses: %d\n", len(n.Addresses))
	for _, a := range n.Addresses {
		a.text(w, now)
	}
	fmt.Fprintln(w, "\nPods:")
	for _, p := range n.Pods {
		fmt.Fprintf(w, "  %s %6d: %s\n", p.Family, p.Pods, headlines[p.Outcome])
	}
	if len(n.Gateways) > 0 {
		fmt.Fprintln(w, "\nPods by external gateway:")
	}
	for _, g := range n.Gateways {
		fmt.Fprintf(w, "  %s: %d\n", g.Address, g.Pods)
	}
	problems(w, "", n.Problems, now)
	n.Header.text(w)
}

// words summarizes the state of a node.
func (s NodeState) words() string {
	text := "Ready"
	if !s.Ready {
		text = "not Ready"
	}
	if s.Cordoned {
		text += ", cordoned"
	}
	if s.Draining {
		text += ", handing over its addresses"
	}
	return text
}

func (a NodeAddress) text(w io.Writer, now time.Time) {
	state := "programmed"
	switch {
	case !a.Planned:
		state = "to be released"
	case !a.Programmed:
		state = "planned, not programmed"
	}
	fmt.Fprintf(w, "  %s for %s: %s%s\n", a.Address, a.Object, state, since(a.Since, now))
}
