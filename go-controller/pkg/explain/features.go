package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	routev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/adminpolicybasedroute/v1"
	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func (c *Cluster) notReadySince(name string) *metav1.Time {
	for _, n := range c.snap.Nodes {
		if n.Name != name {
			continue
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return &condition.LastTransitionTime
			}
		}
	}
	return nil
}

// service returns the verdict of EgressServices on the pod.
func (v *view) service() verdict {
	d := verdict{detailed: v.detailed}
	for _, key := range v.c.index.egressServices[v.addr] {
		s, obj := v.c.services[key], v.c.objects[key]
		lost := v.lostTo(key)
		endpoint := slices.ContainsFunc(s.Endpoints, func(e egressservice.Endpoint) bool { return e.Addr == v.addr })
		awaited := slices.Contains(s.Awaited, v.addr)
		has := endpoint || awaited || lost != ""
		unserved := v.c.unserved(key, v.fam.String())
		if !has && (unserved == "" || obj.Namespace != v.pod.Namespace) {
			continue
		}
		object := "EgressService/" + key
		conditions, problems := conditionsOf(object, obj.Generation, obj.Status.Conditions)
		chosen := Selected{Object: object, Wins: has && lost == "", Why: "its Service selects the pod", Conditions: conditions}
		if !has {
			chosen.Why = unserved
			if s.Refused != (egressservice.Refusal{}) {
				d.problems = append(d.problems, problems...)
			}
			d.selected = append(d.selected, chosen)
			continue
		}
		if lost != "" {
			chosen.Why = lost + " is older and has the pod"
			d.selected = append(d.selected, chosen)
			continue
		}
		d.problems = append(d.problems, problems...)
		v.served(&d, &chosen, s, v.c.hosted[key], obj)
		d.selected = append(d.selected, chosen)
	}
	return d
}

// unserved returns why an EgressService has no pods in a family; empty if it can have some.
func (c *Cluster) unserved(key, family string) string {
	switch s := c.services[key]; {
	case s.Refused != (egressservice.Refusal{}):
		return s.Refused.Message
	case !s.PerNode && !slices.ContainsFunc(s.Ingress, func(a netip.Addr) bool { return topology.FamilyOf(a).String() == family }):
		return "the EgressService has no " + family + " address, and leaves this family alone"
	}
	return ""
}

// lostTo returns the EgressService that has the pod, if key selects it as well.
func (v *view) lostTo(key string) string {
	for _, other := range v.c.services[key].Conflicts {
		o := v.c.services[other]
		has := slices.Contains(o.Awaited, v.addr) || slices.ContainsFunc(o.Endpoints, func(e egressservice.Endpoint) bool { return e.Addr == v.addr })
		if has && v.c.index.listed[key][v.addr] {
			return "EgressService/" + other
		}
	}
	return ""
}

// served sets the outcome for a pod that an EgressService has.
func (v *view) served(d *verdict, chosen *Selected, s egressservice.Service, decision egressservice.Decision, obj *egressservicev1.EgressService) {
	host := egressservice.Status(s, decision)
	if host != obj.Status.Host {
		d.problem(chosen.Object, ReasonNotPlanned, "the planner says host %q, the status %q", host, obj.Status.Host)
	}
	if host == egressservicev1.HostAll {
		d.outcome, d.by, d.everyNode = OutcomeEgressService, chosen.Object, true
		if s.Network != "" {
			v.egressServiceParts(d, s, v.node.Name)
		}
		d.why = "sourceIPBy Network: the pod's own node sends it out, with the address of the interface that it leaves by"
		d.sources = []Source{{Node: v.node.Name, Network: s.Network}}
		return
	}
	now := egressservice.Steering{}
	if at, ok := v.c.nodes[v.c.steeredTo(s)]; ok {
		if hop, ok := topology.AddrOf(v.fam, at.ManagementAddrs()); ok {
			now[v.addr] = hop
		}
	}
	if !egressservice.Acknowledged(s, decision) && s.Ack.Host == host && host != "" {
		d.outcome, d.by = OutcomeUnknown, chosen.Object
		d.why = "host " + host + " has not acknowledged its rules as they are to be: pods that it had before leave with the address that they had, new ones are held back"
		return
	}
	for _, row := range egressservice.Rows(s, decision, now) {
		p, ok := row.Model.(*nbdb.LogicalRouterPolicy)
		if !ok || row.ID != v.addr.String() {
			continue
		}
		d.by = chosen.Object
		d.rows(row)
		if p.Action == nbdb.LogicalRouterPolicyActionDrop {
			why := egressservice.RejectionReason(s, decision)
			if d.outcome, d.why = OutcomeHeld, "it is held back until host "+host+" has acknowledged its rules for the pod"; host == "" {
				d.outcome, d.why = OutcomeDropped, "onUnavailable is Drop, and "+why.Message
			}
			return
		}
		at := v.c.nodeAt(p.Nexthops)
		source, _ := topology.AddrOf(v.fam, s.Ingress)
		d.outcome = OutcomeEgressService
		d.why = fmt.Sprintf("host %s sends it out, with the address of the load balancer", at)
		if at != host {
			d.why += ", until host " + host + " has acknowledged its rules"
		}
		d.sources = []Source{{Address: source.String(), Node: at, Network: s.Network}}
		v.egressServiceParts(d, s, at)
		return
	}
	switch {
	case host == "":
		chosen.Why = "no node serves it: " + egressservice.RejectionReason(s, decision).Message
	default:
		chosen.Why = "host " + host + " has not acknowledged its rules for the pod yet"
		d.problem(chosen.Object, ReasonWaiting, "%s", chosen.Why)
	}
}

// steeredTo returns the node that carries the traffic of an EgressService according to the status: the host,
// or, until it has acknowledged its rules, the previous host if that has the rules of all existing
// pods; "" if the API does not show it.
func (c *Cluster) steeredTo(s egressservice.Service) string {
	before := s.Ack.Host
	_, live := c.live(before)
	switch {
	case s.Done:
		return s.Host
	case before != s.Host && live && s.Ack.Digest == egressservice.Digest(s, before):
		return before
	}
	return ""
}

// nodeAt returns the node with a management address.
func (c *Cluster) nodeAt(hops []string) string {
	for _, hop := range hops {
		if node := c.index.management[hop]; node != "" {
			return node
		}
	}
	return ""
}

// egressIP returns the verdict of EgressIPs on the pod.
func (v *view) egressIP() verdict {
	d := verdict{detailed: v.detailed}
	for i, key := range v.c.selecting(v.pod) {
		obj := v.c.egressIPs[key]
		object := "EgressIP/" + key
		conditions, problems := conditionsOf(object, obj.Generation, obj.Status.Conditions)
		chosen := Selected{Object: object, Wins: i == 0, Conditions: conditions, Why: "its selectors choose the pod"}
		if i > 0 {
			chosen.Why = d.selected[0].Object + " is older and has the pod"
			d.selected = append(d.selected, chosen)
			continue
		}
		e := egressip.Decode(obj)
		if !e.Serves(v.fam) {
			chosen.Why = "it has no " + v.fam.String() + " address, and leaves this family alone"
			d.selected = append(d.selected, chosen)
			continue
		}
		d.problems = append(d.problems, problems...)
		v.steered(&d, &chosen, e)
		d.selected = append(d.selected, chosen)
	}
	return d
}

// steered sets the outcome for a pod that an EgressIP has.
func (v *view) steered(d *verdict, chosen *Selected, e egressip.EgressIP) {
	obj, decision := v.c.egressIPs[e.Key], v.c.placed[e.Key]
	var refused []string
	for _, p := range decision.Placements {
		if p.Addr.IsValid() && topology.FamilyOf(p.Addr) != v.fam {
			continue
		}
		if now := e.Items[p.Addr]; p.Addr.IsValid() && now != p.Node {
			d.problem(chosen.Object, ReasonNotPlanned, "%s: the planner says node %q, the status %q", p.Addr, p.Node, now)
		}
		if p.Refused != (egressip.Refusal{}) {
			refused = append(refused, p.Refused.Message)
		}
	}
	digest := func(given []netip.Addr) string { return v.c.members.Digest(e.Key, given) }
	paths := decision.Paths(obj.Status, podAddrs(v.pod), digest, v.c.live)
	awaitsAck := v.pendingAckProblems(d, chosen.Object, decision.PendingAcks(obj.Status, digest, v.c.live), e)
	state := v.state(e, paths)
	policy, ok := state.Policies[v.addr]
	if ok && len(policy.Hops) > 0 {
		d.outcome, d.by = OutcomeEgressIP, chosen.Object
		d.sources = v.sources(policy, paths)
		d.why = "a node that holds the address sends it out"
		if len(d.sources) > 1 {
			d.why = "each connection takes one of the addresses, and leaves from the node that holds it"
		}
		if e.PerPod && len(e.Addresses) > 1 {
			d.why = "addressAffinity is Pod: this is the address that the pod gets when it starts now; which one it has since an earlier start the API does not tell"
		}
		v.egressIPParts(d, state)
		return
	}
	planned := slices.ContainsFunc(paths, func(p egressip.Path) bool { return topology.FamilyOf(p.Addr) == v.fam })
	_, pending := v.pod.Annotations[kube.AnnotationEgressPending]
	d.by = chosen.Object
	switch {
	case !planned && e.DropWhenUnavailable:
		d.outcome, d.why = OutcomeDropped, "onUnavailable is Drop, and "+strings.Join(refused, "; ")
	case !planned:
		d.by = ""
		chosen.Why = "it gives the pod no address: " + strings.Join(refused, "; ")
	case ok && pending:
		d.outcome, d.why = OutcomeHeld, "the pod does not send before a node holds an address for it"
	case ok:
		d.outcome, d.why = OutcomeDropped, "onUnavailable is Drop, and no node holds an address for the pod yet"
	default:
		d.outcome, d.why = OutcomeUnknown, "no node holds an address for the pod yet: until then it leaves as it did before"
	}
	v.egressIPParts(d, state)
	if planned && !awaitsAck {
		d.problem(chosen.Object, ReasonWaiting, "%s", d.why)
	}
}

// pendingAckProblems adds the pending acknowledgements of nodes for the addresses of the family as problems.
func (v *view) pendingAckProblems(d *verdict, object string, acks []egressip.PendingAck, e egressip.EgressIP) bool {
	found := false
	for _, ack := range acks {
		if slices.ContainsFunc(e.Addrs(), func(a netip.Addr) bool {
			return topology.FamilyOf(a) == v.fam && strings.HasSuffix(ack.What, " "+a.String())
		}) {
			d.problem(object, ReasonWaiting, "node %s is yet to %s", ack.Node, ack.What)
			found = true
		}
	}
	return found
}

// state returns the pod's rows according to the planner of the master, assuming that every translation that
// the plan requires is in force: whether it is follows from status entries and conditions.
func (v *view) state(e egressip.EgressIP, paths []egressip.Path) egressip.State {
	if v.c.states != nil {
		return v.c.states[v.key]
	}
	now := egressip.NewState()
	now.EgressIP = e.Key
	for _, p := range paths {
		at := p.Placement
		if !p.Answered && p.Now.Node != "" {
			at = p.Now
		}
		if at.Primary && topology.FamilyOf(p.Addr) == v.fam {
			now.NATs[egressip.Site{Pod: v.addr, Node: at.Node}] = p.Addr
		}
	}
	_, pending := v.pod.Annotations[kube.AnnotationEgressPending]
	return egressip.Steering{
		EgressIP: e, Paths: paths, Now: now, Applied: now.Clone(),
		Pod:   egressip.Pod{Key: v.key, Addrs: []netip.Addr{v.addr}, Pending: pending},
		Owned: func(string, netip.Addr) bool { return true },
	}.Plan().Want
}

// sources returns the addresses and nodes to which the hops of a policy lead.
func (v *view) sources(policy egressip.Policy, paths []egressip.Path) []Source {
	var sources []Source
	for _, p := range paths {
		for _, at := range []egressip.Placement{p.Placement, p.Now} {
			if at.Node != "" && slices.ContainsFunc(policy.Hops, func(hop netip.Addr) bool {
				return hop == at.NextHop && policy.Egress[hop] == p.Addr
			}) {
				sources = append(sources, Source{Address: p.Addr.String(), Node: at.Node, Network: at.Network.String(), Secondary: !at.Primary})
			}
		}
	}
	return sources
}

// gateways returns the verdict of external gateways on the pod.
func (v *view) gateways(service, ip verdict) verdict {
	d := verdict{detailed: v.detailed}
	reroutes := func(d verdict) bool {
		return d.outcome != "" && d.outcome != OutcomeUnknown && !d.everyNode
	}
	at := v.routeSnapshot()
	at.Rerouted = map[netip.Addr]bool{v.addr: reroutes(service) || reroutes(ip)}
	own := v.c.routeConfig.DisableSNATMultipleGWs
	rows := externalroute.NodeRows(v.c.routeConfig, v.c.routes, at)
	d.rows(rows...)
	for _, row := range rows {
		switch m := row.Model.(type) {
		case *nbdb.LogicalRouterStaticRoute:
			d.gateways = append(d.gateways, Gateway{Address: m.Nexthop, BFD: len(row.Refs) > 0})
		case *nbdb.NAT:
			own = own || len(row.Refs) > 0
		}
	}
	pods := map[string]string{} // the gateway pods, by address
	v.policies(&d, pods)
	v.annotated(&d, pods)
	for i := range d.gateways {
		d.gateways[i].Pod = pods[d.gateways[i].Address]
	}
	v.inUse(&d)
	if len(d.gateways) == 0 {
		return d
	}
	d.outcome, d.by = OutcomeGateways, v.routedBy(d.selected)
	v.translated(&d, own, ip)
	return d
}

// routeSnapshot returns what the rows for the pod's external gateways are planned from, without the influence of other features.
func (v *view) routeSnapshot() externalroute.NodeSnapshot {
	return externalroute.NodeSnapshot{Node: v.node, Pods: []externalroute.Pod{{Key: v.key, Namespace: v.pod.Namespace, Addrs: []netip.Addr{v.addr}}}}
}

// policies adds the policies that select the pod's namespace. It stores the gateway pods in gateways, by address.
func (v *view) policies(d *verdict, gateways map[string]string) {
	for _, obj := range v.c.snap.Routes {
		policy := v.c.routes.Policies[obj.Name]
		if !slices.Contains(policy.Namespaces, v.pod.Namespace) {
			continue
		}
		object := "AdminPolicyBasedExternalRoute/" + obj.Name
		conditions, problems := conditionsOf(object, obj.Generation, obj.Status.Conditions)
		var hops []netip.Addr
		for _, h := range externalroute.Status(policy, externalroute.Served{}, routev1.AdminPolicyBasedExternalRouteStatus{}).Hops {
			if a, err := netip.ParseAddr(h.IP); err == nil {
				hops, gateways[h.IP] = append(hops, a), h.Pod
			}
		}
		chosen := Selected{Object: object, Conditions: conditions, Why: fmt.Sprintf("it selects namespace %s", v.pod.Namespace)}
		if _, ok := topology.AddrOf(v.fam, hops); ok {
			v.routed(&chosen, d.gateways, hops)
		} else {
			chosen.Why += ", but has no usable " + v.fam.String() + " hop"
		}
		d.problems = append(d.problems, problems...)
		d.selected = append(d.selected, chosen)
	}
}

// routed makes an object decide if the pod has a route to one of its hops, and says why it has none otherwise.
func (v *view) routed(chosen *Selected, gateways []Gateway, hops []netip.Addr) {
	chosen.Wins = slices.ContainsFunc(gateways, func(g Gateway) bool {
		return slices.ContainsFunc(hops, func(a netip.Addr) bool { return a.String() == g.Address })
	})
	switch {
	case chosen.Wins:
	case !v.node.HasGateway():
		chosen.Why += ", but the pod's own node has no gateway router yet"
	default:
		chosen.Why += ", but its only " + v.fam.String() + " hop is the pod's own node"
	}
}

// routedBy names the objects that give the pod its gateways.
func (v *view) routedBy(selected []Selected) string {
	var names []string
	for _, s := range selected {
		if s.Wins {
			names = append(names, s.Object)
		}
	}
	return strings.Join(names, ", ")
}

// translated sets the addresses that gateways see.
func (v *view) translated(d *verdict, own bool, ip verdict) {
	if own {
		d.why = "its node sends it to the gateways, with the pod's own address"
		d.sources = []Source{{Address: v.addr.String(), Node: v.node.Name}}
		return
	}
	here, second := v.uplinksOf(d.gateways)
	d.why = "its node sends it to the gateways, with the node's address"
	if second {
		d.why += " on their network"
		if p, ok := topology.PrefixOf(v.fam, v.node.Gateway.External.Addrs); ok {
			d.sources = []Source{{Address: p.Addr().String(), Node: v.node.Name}}
		}
		if !here {
			return
		}
	}
	for _, s := range ip.sources {
		if s.Node == v.node.Name && !s.Secondary {
			d.why = "its node sends it to the gateways, and translates it to the address of the EgressIP that it holds"
			if second {
				d.why += "; on the network of the second uplink to the node's"
			}
			d.sources = append([]Source{s}, d.sources...)
			return
		}
	}
	if a := v.nodeAddr(); a.IsValid() {
		d.sources = append([]Source{{Address: a.String(), Node: v.node.Name}}, d.sources...)
	}
}

// uplinksOf reports through which uplinks of the node gateways are reached: the ordinary one, the
// second one.
func (v *view) uplinksOf(gateways []Gateway) (ordinary, second bool) {
	for _, g := range gateways {
		a, _ := netip.ParseAddr(g.Address)
		if v.node.Gateway.External.Reaches(a) {
			second = true
		} else {
			ordinary = true
		}
	}
	return ordinary, second
}

// annotated adds the annotations that give the pod's namespace gateways, and those that
// are refused. It stores the gateway pods in gateways, by address.
func (v *view) annotated(d *verdict, gateways map[string]string) {
	ns := v.pod.Namespace
	if !v.c.snap.Settings.ExternalGateways {
		return
	}
	used := v.c.routes.Annotated[ns]
	some := func(object string) bool { _, ok := topology.AddrOf(v.fam, used[object]); return ok }
	refused := func(key string) { d.problems = append(d.problems, v.c.refusedGateways(key)...) }
	if some(ns) {
		chosen := Selected{Object: "Namespace/" + ns, Why: "its annotation " + kube.AnnotationRoutingExternalGWs + " names gateways"}
		v.routed(&chosen, d.gateways, used[ns])
		d.selected = append(d.selected, chosen)
	}
	refused(ns)
	for _, p := range v.c.announced {
		key := kube.PodKey(p)
		if !slices.Contains(kube.RoutingNamespaces(p), ns) {
			continue
		}
		object := "Pod/" + key
		chosen := Selected{Object: object, Why: "its annotation " + kube.AnnotationRoutingNamespaces + " makes it a gateway of the namespace"}
		switch {
		case !slices.ContainsFunc(v.c.gateways.Announced, func(g externalroute.GatewayPod) bool { return g.Key == key }):
			chosen.Why += ", but it is not ready"
		case some(key):
			v.routed(&chosen, d.gateways, used[key])
		case len(used[key]) > 0:
			continue // it is a gateway in the other family
		default:
			chosen.Why += ", but it has no address that can be used"
		}
		d.selected = append(d.selected, chosen)
		refused(key)
		for _, a := range used[key] {
			gateways[a.String()] = key
		}
	}
}

// refusedGateways returns why gateways of "namespace", or of the pod "namespace/pod", are not used.
func (c *Cluster) refusedGateways(key string) []Problem {
	object := "Namespace/" + key
	if strings.Contains(key, "/") {
		object = "Pod/" + key
	}
	var problems []Problem
	for _, why := range c.routes.Refused[key] {
		problems = append(problems, Problem{Object: object, Reason: ReasonGatewayRefused, Message: why})
	}
	return problems
}

// inUse compares the plan with the gateways that the master has published for the namespace.
func (v *view) inUse(d *verdict) {
	if ns := v.c.namespaces[v.pod.Namespace]; ns != nil {
		d.problems = append(d.problems, v.c.gatewaysInUse(ns)...)
	}
}

// gatewaysInUse compares the plan with the gateways that the master has published for a namespace.
func (c *Cluster) gatewaysInUse(ns *corev1.Namespace) []Problem {
	if !c.snap.Settings.ExternalGateways {
		return nil
	}
	var planned []netip.Addr
	for _, h := range c.routes.Hops[ns.Name] {
		planned = append(planned, h.Addr)
	}
	want, is := kube.FormatAddrs(planned), ns.Annotations[kube.AnnotationGatewaysInUse]
	if want == is {
		return nil
	}
	return []Problem{{Object: "Namespace/" + ns.Name, Reason: ReasonNotPlanned,
		Message: fmt.Sprintf("the planner says gateways %q, the annotation %s %q", want, kube.AnnotationGatewaysInUse, is)}}
}
