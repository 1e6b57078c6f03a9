package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// ErrNotFound means that an object does not exist.
var ErrNotFound = errors.New("not found")

// view is the state of computing the verdict for a pod in one family.
type view struct {
	c    *Cluster
	pod  *corev1.Pod
	key  string
	node topology.Node
	addr netip.Addr
	fam  topology.Family
	out  *Family
	// detailed: the implementation of the verdict is requested, too.
	detailed bool
	// to is the destination's address; invalid for any address outside the cluster.
	to netip.Addr
	// note is a remark about the destination in addition to the verdict; unservedReason says why nothing serves
	// the destination.
	note, unservedReason string
}

// Pod explains the pod "namespace/name"; to is a destination, the zero AddrPort for
// any address outside the cluster, port 0 for any port.
func (c *Cluster) Pod(key string, to netip.AddrPort) (Pod, error) { return c.pod(key, to, true) }

// pod is Pod; without detailed, the answer does not include the implementation.
func (c *Cluster) pod(key string, to netip.AddrPort, detailed bool) (Pod, error) {
	p := c.pods[key]
	if p == nil {
		return Pod{}, fmt.Errorf("pod %s: %w", key, ErrNotFound)
	}
	header, problems := c.header(KindPod)
	out := Pod{Header: header, Pod: key, Node: p.Spec.NodeName, Problems: problems, RangesUnknown: c.snap.Settings.RangesUnknown}
	families := topology.Families
	if to.Addr().IsValid() {
		if out.To = to.Addr().String(); to.Port() != 0 {
			out.To = to.String()
		}
		families = []topology.Family{topology.FamilyOf(to.Addr())}
	}
	node, known := c.nodes[p.Spec.NodeName]
	switch {
	case p.Spec.NodeName == "", p.Spec.HostNetwork:
	case !known:
		out.Problems = append(out.Problems, Problem{Object: "Node/" + p.Spec.NodeName, Reason: ReasonNodeNotReady, Message: "there is no such node"})
	case !node.Ready:
		out.Problems = append(out.Problems, Problem{Object: "Node/" + node.Name, Reason: ReasonNodeNotReady,
			Message: "the pod's own node is not Ready: it may not send at all", Since: c.notReadySince(node.Name)})
	default:
		for _, p := range c.unreachableProblem(c.state(node)) {
			p.Message = "the master's probes get no answer from the pod's own node: it may not send at all"
			out.Problems = append(out.Problems, p)
		}
	}
	for _, f := range families {
		if _, ok := topology.PrefixOf(f, c.snap.Settings.Pods); !ok && !to.Addr().IsValid() {
			continue
		}
		family := Family{Family: f.String()}
		v := view{c: c, pod: p, key: key, node: node.Node, fam: f, out: &family, detailed: detailed, to: to.Addr()}
		v.addr, _ = topology.AddrOf(f, podAddrs(p))
		v.explain(to)
		out.Families = append(out.Families, family)
		if v.note != "" {
			out.Notes = append(slices.Clone(out.Notes), v.note)
		}
	}
	out.InPlace = len(out.Problems) == 0 && !slices.ContainsFunc(out.Families, func(f Family) bool { return len(f.Problems) > 0 })
	out.Notes = append(slices.Clone(out.Notes), c.assumed(out)...)
	return out, nil
}

// assumed returns the assumptions of an answer where the API does not have the facts.
func (c *Cluster) assumed(p Pod) []string {
	var notes []string
	for _, f := range p.Families {
		if f.Outcome == OutcomeEgressIP || f.Outcome == OutcomeEgressService {
			notes = append(notes, c.reachabilityNotes()...)
			break
		}
	}
	for _, f := range p.Families {
		if slices.ContainsFunc(f.Gateways, func(g Gateway) bool { return g.BFD }) {
			notes = append(notes, "BFD: the sessions are not in the API; all of them are taken to be up")
			break
		}
	}
	return notes
}

// explain applies the features in order of precedence: external gateways, EgressService,
// EgressIP, except for an EgressService that every node serves.
func (v *view) explain(to netip.AddrPort) {
	f := v.out
	switch p := v.pod; {
	case p.Spec.NodeName == "":
		f.Outcome, f.Why = OutcomeNone, "the pod has no node yet"
		v.problem("Pod/"+v.key, ReasonNoAddress, f.Why)
		return
	case ended(p):
		f.Outcome, f.Why = OutcomeNone, "the pod has ended"
		return
	case p.Spec.HostNetwork:
		v.fromHost(to)
		return
	case !v.addr.IsValid():
		f.Outcome, f.Why = OutcomeNone, "the pod has no "+v.fam.String()+" address"
		if len(podAddrs(p)) == 0 {
			v.problem("Pod/"+v.key, ReasonNoAddress, "the pod has no address yet")
		}
		return
	}
	f.Address = v.addr.String()
	if to.IsValid() && v.inside(to) {
		return
	}
	service, ip := v.service(), v.egressIP()
	gateways := v.gateways(service, ip)
	order, rule := []verdict{gateways, service, ip}, "external gateways, then EgressServices, then EgressIPs"
	if service.everyNode && v.bypassesServiceTable(ip, service) {
		order, rule = []verdict{gateways, ip, service}, "nothing in OVN keeps the pods of an EgressService with sourceIPBy Network on their own nodes"
	}
	won := ""
	for _, d := range order {
		for j := range d.selected {
			s := &d.selected[j]
			switch {
			case won != "" && s.Wins:
				s.Wins, s.Why = false, won+" comes first: "+rule
			case d.outcome == "" && s.Wins:
				s.Wins = false
			}
		}
		if won == "" && d.outcome != "" {
			won = d.by
			f.Outcome, f.By, f.Why, f.Sources, f.Gateways, f.ImplementedBy = d.outcome, d.by, d.why, d.sources, d.gateways, d.parts
		}
		f.Selected = append(f.Selected, d.selected...)
		f.Problems = append(f.Problems, d.problems...)
	}
	if won == "" {
		f.Outcome, f.Why = OutcomeNode, "no object that is served selects the pod: its own node gives it its address"
		if len(f.Selected) == 0 {
			f.Why = "nothing selects the pod: its own node gives it its address"
		}
		v.fromNode()
	}
	v.noService()
}

// ended reports whether a pod has ended: none of its containers runs any more.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// bypassesServiceTable reports whether an EgressIP routes the pod past the routing table that an
// EgressService has on the pod's own node: this is not the case for addresses on a secondary network that this
// node holds.
func (v *view) bypassesServiceTable(ip, service verdict) bool {
	if ip.outcome != OutcomeEgressIP {
		return ip.outcome != ""
	}
	table := slices.ContainsFunc(service.sources, func(s Source) bool { return s.Network != "" })
	return !table || slices.ContainsFunc(ip.sources, func(s Source) bool { return !s.Secondary || s.Node != v.node.Name })
}

// verdict is the decision of one feature about a pod in one family; outcome is empty if the feature
// leaves the decision to the others.
type verdict struct {
	outcome  Outcome
	by, why  string
	sources  []Source
	gateways []Gateway
	selected []Selected
	problems []Problem
	// everyNode: no policy steers the pod, since every node serves its EgressService.
	everyNode bool
	// parts are the implementation, if detailed.
	parts    []Implementation
	detailed bool
}

func (d *verdict) problem(object, reason, format string, args ...any) {
	d.problems = append(d.problems, Problem{Object: object, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (v *view) problem(object, reason, message string) {
	v.out.Problems = append(v.out.Problems, Problem{Object: object, Reason: reason, Message: message})
}

// fromNode sets the outcome that the pod leaves with the address of its own node.
func (v *view) fromNode() {
	if a := v.nodeAddrTo(v.to); a.IsValid() {
		v.out.Sources = []Source{{Address: a.String(), Node: v.node.Name}}
	}
}

// nodeAddrTo returns the node's address with which the pod appears at to. If the kernel sends the traffic, see
// byKernel, and for pods on the host's network, it is the address of the interface, which is known for networks that the node
// is on.
func (v *view) nodeAddrTo(to netip.Addr) netip.Addr {
	a := v.nodeAddr()
	if !v.pod.Spec.HostNetwork && !v.byKernel() {
		return a
	}
	for _, p := range v.node.Host {
		if !p.Contains(to) {
			continue
		}
		if p.Contains(a) {
			return a
		}
		return p.Addr()
	}
	return a
}

// nodeAddr returns the address to which a node translates its pods.
func (v *view) nodeAddr() netip.Addr {
	if p, ok := topology.PrefixOf(v.fam, slices.Concat(v.node.Gateway.Addrs, v.node.Primary)); ok {
		return p.Addr()
	}
	return netip.Addr{}
}
