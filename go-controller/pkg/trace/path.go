package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// The kinds of hops.
const (
	HopPod    = "pod"
	HopSwitch = "switch"
	HopRouter = "router"
	HopKernel = "kernel"
	HopBridge = "bridge"
)

// How paths end.
const (
	// EndLeaves: it leaves the cluster, or the host, through an interface.
	EndLeaves = "Leaves"
	// EndArrives: it arrives inside the cluster.
	EndArrives = "Arrives"
	// EndDropped: it is dropped.
	EndDropped = "Dropped"
	// EndUnknown: a node on the way did not answer.
	EndUnknown = "Unknown"
)

// Reasons of problems of traces.
const (
	// ReasonSilent: a node does not answer.
	ReasonSilent = "NodeSilent"
	// ReasonNoAnswer: a node could not determine the answer.
	ReasonNoAnswer = "NoAnswer"
	// ReasonDropped: the packet is dropped.
	ReasonDropped = "Dropped"
	// ReasonMissing: the packet did not match a planned row or rule.
	ReasonMissing = "Missing"
	// ReasonDiffers: the packet does not leave as planned.
	ReasonDiffers = "PathDiffers"
)

// Path is one possible path of the packet.
type Path struct {
	Hops []Hop `json:"hops"`
	// End is how the path ends: one of the End constants.
	End string `json:"end"`
	// Node and By are where it ends: the node that the packet leaves from, and through which interface.
	Node string `json:"node,omitempty"`
	By   string `json:"by,omitempty"`
	// Source is the address that the other side sees.
	Source string `json:"source,omitempty"`
	// AsPlanned reports whether the path is as planned.
	AsPlanned bool              `json:"asPlanned"`
	Problems  []explain.Problem `json:"problems,omitempty"`
	Notes     []string          `json:"notes,omitempty"`

	source      netip.Addr
	to          netip.AddrPort // current destination
	several     bool           // there are several endpoints, of which to is one
	kernelRules []string
}

// Hop is a point on the path, with what happens to the packet there.
type Hop struct {
	Kind  string   `json:"kind"`
	Name  string   `json:"name"`
	Node  string   `json:"node,omitempty"`
	Facts []string `json:"facts,omitempty"`
}

func (p *Path) hop(h Hop)             { p.Hops = append(p.Hops, h) }
func (p *Path) note(text string)      { p.Notes = append(p.Notes, text) }
func (p *Path) endAt(node, by string) { p.Node, p.By, p.Source = node, by, p.source.String() }

func (p *Path) problem(object, reason, message string) {
	p.Problems = append(p.Problems, explain.Problem{Object: object, Reason: reason, Message: message})
}

func (p *Path) unknown(node, reason, message string) {
	p.End, p.Node = EndUnknown, node
	p.problem("Node/"+node, reason, message)
}

func (p *Path) dropped(message string) {
	p.End = EndDropped
	last := p.Hops[len(p.Hops)-1]
	p.Node = last.Node
	p.problem(last.Kind+" "+last.Name, ReasonDropped, message)
}

func (p *Path) arrives(node, by string) {
	p.End = EndArrives
	p.endAt(node, by)
}

// datapaths adds the routers and switches of OVN.
func (p *Path) datapaths(ovn OVN) {
	last := ""
	for i, s := range ovn.Steps {
		if s.Datapath != last {
			last = s.Datapath
			kind := HopSwitch
			if strings.HasPrefix(s.Stage, "lr_") {
				kind = HopRouter
			}
			p.hop(Hop{Kind: kind, Name: s.Datapath, Node: nodeOf(s.Datapath)})
		}
		if fact := factOf(s); fact != "" {
			h := &p.Hops[len(p.Hops)-1]
			h.Facts = append(h.Facts, fact)
		}
		if backend := endpointOf(s); backend != "" {
			h := &p.Hops[len(p.Hops)-1]
			h.Facts = append(h.Facts, "destination becomes "+backend)
		}
		if s.Stage == "lr_out_snat" && ovn.Source.IsValid() && i > 0 {
			h := &p.Hops[len(p.Hops)-1]
			if hasAction(s, "ct_snat") {
				h.Facts = append(h.Facts, "source becomes "+ovn.Source.String())
			}
		}
	}
}

// endpointOf returns the Service endpoint that a flow sends to, the first if there are several; "" for other flows.
func endpointOf(s Step) string {
	for _, a := range s.Actions {
		if m := ovnBackends.FindStringSubmatch(a); m != nil {
			first, _, _ := strings.Cut(m[1], ",")
			return first
		}
	}
	return ""
}

// nodeOf returns the node of a router or switch, from its name; "" if it belongs to no single node.
func nodeOf(datapath string) string {
	switch datapath {
	case topology.ClusterRouter, topology.JoinSwitch:
		return ""
	}
	for _, prefix := range []string{topology.GatewayRouter(""), topology.ExternalSwitch(""), topology.ExternalGatewaySwitch("")} {
		if node, ok := strings.CutPrefix(datapath, prefix); ok {
			return node
		}
	}
	return datapath
}

func hasAction(s Step, prefix string) bool {
	return slices.ContainsFunc(s.Actions, func(a string) bool { return strings.HasPrefix(a, prefix) })
}

// factOf describes a flow if it is worth showing; "" if not.
func factOf(s Step) string {
	hop := ""
	for _, a := range s.Actions {
		for _, prefix := range []string{"reg0 = ", "xxreg0 = "} {
			if h, ok := strings.CutPrefix(strings.TrimSuffix(a, ";"), prefix); ok {
				hop = h
			}
		}
	}
	drops := slices.Contains(s.Actions, "drop;")
	what := map[string]string{"lr_in_policy": "policy", "lr_in_policy_ecmp": "policy", "lr_in_ip_routing": "route", "lr_in_ip_routing_ecmp": "route",
		"lr_out_snat": "snat"}[s.Stage]
	switch {
	case drops:
		return fmt.Sprintf("%s, priority %d, %s: drop", s.Stage, s.Priority, matchText(s.Match))
	case what == "" || what == "snat" && !hasAction(s, "ct_snat"):
		return ""
	case hop != "":
		return fmt.Sprintf("%s, priority %d, %s: to %s", what, s.Priority, matchText(s.Match), hop)
	case what == "snat", what == "policy" && s.Stage == "lr_in_policy" && s.Priority > 0:
		return fmt.Sprintf("%s, priority %d, %s", what, s.Priority, matchText(s.Match))
	}
	return ""
}

// missing adds a problem for each planned row of the northbound database that the packet did not match.
func (t *Tracer) missing(p *Path, ovn OVN) {
	gateway, hops, taken := t.routes(ovn)
	for _, part := range t.family.ImplementedBy {
		missing := false
		router := part.Row.Parent.Name
		switch m := part.Row.Model.(type) {
		case *nbdb.LogicalRouterPolicy:
			missing = (router != gateway || t.ofRoute(m, taken)) && t.untaken(p, ovn, router, m)
		case *nbdb.NAT:
			translated := ovn.Source.String() == m.ExternalIP
			if len(part.Row.Refs) > 0 { // it exempts the pod from translation
				translated = !ovn.Source.IsValid()
			}
			missing = ovn.passes(router) && !ovn.Asks && len(ovn.at(router, "lr_out_snat")) > 0 && !translated
		}
		if missing {
			p.problem(t.by(), ReasonMissing, "OVN did not take the planned "+part.What+instead(ovn, part.Row))
		}
	}
	if len(hops) > 0 && ovn.passes(gateway) && taken == nil {
		p.problem(t.by(), ReasonMissing, fmt.Sprintf("OVN did not take any of the planned routes of %s to %s", gateway, strings.Join(hops, ", ")))
	}
}

// routes returns the router and the next hops of the planned routes, and the route that the packet took; nil if none of them.
func (t *Tracer) routes(ovn OVN) (gateway string, hops []string, taken *nbdb.LogicalRouterStaticRoute) {
	for _, part := range t.family.ImplementedBy {
		m, ok := part.Row.Model.(*nbdb.LogicalRouterStaticRoute)
		if !ok {
			continue
		}
		gateway = part.Row.Parent.Name
		hops = append(hops, m.Nexthop)
		for _, s := range slices.Concat(ovn.at(gateway, "lr_in_ip_routing"), ovn.at(gateway, "lr_in_ip_routing_ecmp")) {
			if slices.ContainsFunc(s.Actions, func(a string) bool { return strings.HasSuffix(a, "reg0 = "+m.Nexthop+";") }) {
				taken = m
			}
		}
	}
	return gateway, hops, taken
}

// ofRoute reports whether a planned policy of a gateway router is for packets that take a route. A packet matches one policy: that of its
// gateway, or that of the second uplink if there is none for the gateway.
func (t *Tracer) ofRoute(m *nbdb.LogicalRouterPolicy, taken *nbdb.LogicalRouterStaticRoute) bool {
	if taken == nil {
		return false
	}
	ofHop := func(m *nbdb.LogicalRouterPolicy) bool {
		return m.Priority == topology.PriorityUntranslated && strings.HasSuffix(m.Match, " == "+taken.Nexthop)
	}
	if m.Priority != topology.PriorityExternalGateway {
		return ofHop(m)
	}
	return taken.OutputPort != nil && strings.Contains(m.Match, fmt.Sprintf("outport == %q", *taken.OutputPort)) &&
		!slices.ContainsFunc(t.family.ImplementedBy, func(part explain.Implementation) bool {
			other, ok := part.Row.Model.(*nbdb.LogicalRouterPolicy)
			return ok && ofHop(other)
		})
}

// untaken reports whether the packet did not match a planned policy of a router, as far as a trace can tell.
func (t *Tracer) untaken(p *Path, ovn OVN, router string, m *nbdb.LogicalRouterPolicy) bool {
	// The policy for traffic to nodes never matches: a traced packet leaves the cluster.
	if m.Priority == topology.PriorityGatewayPodToNode || !ovn.passes(router) {
		return false
	}
	unknown := t.plan.RangesUnknown && m.Priority == topology.PriorityHybridRoute // its match excludes those ranges
	taken := slices.ContainsFunc(ovn.at(router, "lr_in_policy"), func(s Step) bool {
		return s.Priority == m.Priority && (s.Match == m.Match || unknown)
	})
	if unknown && !taken {
		p.note(fmt.Sprintf("whether %s is to take the planned policy of priority %d cannot be told: its match has the ranges of the cluster, which are not known", router, m.Priority))
	}
	return !taken && !unknown
}

// instead describes what OVN did instead of applying a policy.
func instead(ovn OVN, row nb.Row) string {
	if _, policy := row.Model.(*nbdb.LogicalRouterPolicy); !policy {
		return ""
	}
	for _, s := range ovn.at(row.Parent.Name, "lr_in_policy") {
		if s.Priority > 0 {
			return fmt.Sprintf(", but the one of priority %d for %s", s.Priority, s.Match)
		}
	}
	return ", nor any other policy"
}

// by returns the object that decides about the pod's egress, or the pod itself.
func (t *Tracer) by() string {
	if t.family.By != "" {
		return t.family.By
	}
	return "Pod/" + t.plan.Pod
}

// leaves ends a path at an interface of a node.
func (t *Tracer) leaves(p *Path, node, by string) {
	p.End = EndLeaves
	p.endAt(node, by)
}
