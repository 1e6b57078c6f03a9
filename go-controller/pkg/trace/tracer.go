package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Tracer decides which node to ask what next, until the paths of a packet are known.
type Tracer struct {
	plan     explain.Pod
	family   explain.Family
	to       netip.AddrPort
	protocol string
	next     []pending
	paths    []*Path
	probe    *Probe // nil: no packet is sent
	sent     bool   // whether the probe has been requested
}

// pending is a question about one path, or about the start of one if path is nil.
type pending struct {
	question Question
	path     *Path
}

// New starts a trace: plan is what package explain says of the pod and the destination.
func New(plan explain.Pod, to netip.AddrPort, protocol string) (*Tracer, error) {
	if len(plan.Families) != 1 {
		return nil, fmt.Errorf("pod %s: a trace is about one family, and the plan has %d", plan.Pod, len(plan.Families))
	}
	t := &Tracer{plan: plan, family: plan.Families[0], to: to, protocol: protocol}
	switch {
	case t.family.Address == "" && t.family.Outcome == explain.OutcomeNode:
		return nil, fmt.Errorf("pod %s: %s", plan.Pod, t.family.Why)
	case t.family.Address == "":
		return nil, fmt.Errorf("pod %s has no way to send: %s", plan.Pod, t.family.Why)
	}
	t.ask(nil, Question{Node: plan.Node, About: AboutOVN, Pod: plan.Pod})
	return t, nil
}

func (t *Tracer) ask(p *Path, q Question) {
	q.To, q.Protocol = t.to, t.protocol
	if p != nil {
		q.To = p.to
	}
	t.next = append(t.next, pending{q, p})
}

// Next returns the next question; false means that there is none and the trace is complete.
func (t *Tracer) Next() (Question, bool) {
	if len(t.next) == 0 {
		t.probes()
	}
	if len(t.next) == 0 {
		return Question{}, false
	}
	return t.next[0].question, true
}

// Answer takes the answer to the question that Next returned; err is why there is none.
func (t *Tracer) Answer(facts Facts, err error) {
	p := t.next[0]
	t.next = t.next[1:]
	q := p.question
	if q.About == AboutProbe || q.About == AboutConnection {
		t.answerProbe(q, facts, err)
		return
	}
	path := p.path
	if path == nil {
		path = t.begin()
	}
	switch {
	case err != nil:
		path.unknown(q.Node, ReasonSilent, fmt.Sprintf("what node %s does is not known: %v", q.Node, err))
	case q.About == AboutOVN && facts.OVN != nil:
		t.logical(path, q, *facts.OVN)
		return
	case q.About == AboutKernel && facts.Kernel != nil:
		t.kernel(path, q, *facts.Kernel)
		return
	case q.About == AboutBridge && facts.Bridge != nil:
		t.bridge(path, q, *facts.Bridge)
		return
	default:
		path.unknown(q.Node, ReasonSilent, fmt.Sprintf("node %s does not say what it was asked: is its ovnkube of another version?", q.Node))
	}
	if p.path == nil {
		t.paths = append(t.paths, path)
	}
}

// begin returns a path that starts at the pod.
func (t *Tracer) begin() *Path {
	p := &Path{source: netip.MustParseAddr(t.family.Address), to: t.to}
	p.hop(Hop{Kind: HopPod, Name: t.plan.Pod, Node: t.plan.Node,
		Facts: []string{fmt.Sprintf("sends %s from %s", strings.ToUpper(t.protocol), t.family.Address)}})
	return p
}

// logical adds what OVN does to the path.
func (t *Tracer) logical(p *Path, q Question, ovn OVN) {
	if len(ovn.Choices) > 1 && q.Choice == 0 {
		for _, c := range ovn.Choices[:min(len(ovn.Choices), mostChoices)] {
			again := q
			again.Choice = c
			t.ask(nil, again)
		}
		return
	}
	t.paths = append(t.paths, p)
	p.datapaths(ovn)
	t.missing(p, ovn)
	if ovn.Source.IsValid() {
		p.source = ovn.Source
	}
	if ovn.To.IsValid() {
		p.to = ovn.To
	}
	if p.several = ovn.Endpoints > 1; p.several {
		p.note(fmt.Sprintf("the Service has %d endpoints, of which each connection takes one: this is the way to %s", ovn.Endpoints, ovn.To))
	}
	if step, ok := ovn.Dropped(); ok {
		p.dropped(fmt.Sprintf("%s of %s drops it: priority %d, %s", step.Stage, step.Datapath, step.Priority, matchText(step.Match)))
		return
	}
	exits := ovn.Exits()
	if len(exits) == 0 {
		p.unknown(q.Node, ReasonNoAnswer, "OVN says nothing of the packet: is the pod's port bound?")
		return
	}
	exit := exits[0]
	if ovn.Asks {
		p.note("the hardware address of the next hop is not known yet: the first packet waits for it, and its translation is not shown")
	}
	node, ordinary := strings.CutPrefix(exit.Datapath, topology.ExternalSwitch(""))
	if !ordinary {
		node = strings.TrimPrefix(exit.Datapath, topology.ExternalGatewaySwitch(""))
	}
	switch {
	case exit.Type == "localnet":
		if ovn.Asks {
			p.unknown(node, ReasonNoAnswer, "OVN has not resolved the next hop's hardware address: trace again when something was sent that way")
			return
		}
		t.ask(p, Question{Node: node, About: AboutBridge, Source: p.source, Mark: ovn.Mark, Second: !ordinary})
	case exit.Port == topology.ManagementLSP(exit.Datapath):
		t.ask(p, Question{Node: exit.Datapath, About: AboutKernel, Source: p.source, Mark: ovn.Mark})
	default:
		p.arrives(exit.Datapath, "port "+exit.Port)
	}
}

// kernel adds what the kernel of a node does to the path.
func (t *Tracer) kernel(p *Path, q Question, k Kernel) {
	hop := Hop{Kind: HopKernel, Name: q.Node, Node: q.Node}
	fact := func(format string, args ...any) { hop.Facts = append(hop.Facts, fmt.Sprintf(format, args...)) }
	fact("comes in by %s", topology.ManagementPort)
	for _, r := range k.Rules {
		fact("rule %s", r)
	}
	if k.Unroutable != "" {
		p.hop(hop)
		p.dropped("node " + q.Node + " has no route: " + k.Unroutable)
		return
	}
	if k.Local {
		p.hop(hop)
		p.arrives(q.Node, "the node itself")
		return
	}
	way := "route by " + k.Interface
	if k.Gateway.IsValid() {
		way += " via " + k.Gateway.String()
	}
	if k.Table != 0 && k.Table != topology.MainTable {
		way += fmt.Sprintf(", table %d", k.Table)
	}
	fact("%s", way)
	if len(k.Forward.Unsure) == 0 && (k.Forward.Target == "DROP" || k.Forward.Target == "REJECT") {
		p.hop(hop)
		p.dropped(fmt.Sprintf("node %s does not forward it: filter %s", q.Node, strings.Join(k.Forward.Rules, "; ")))
		return
	}
	for _, r := range k.NAT.Rules {
		fact("nat %s", r)
	}
	if len(k.NAT.Unsure) > 0 {
		p.note("rules that a trace cannot judge come before: " + strings.Join(k.NAT.Unsure, "; "))
	}
	if k.Source.IsValid() && k.Source != p.source {
		fact("source becomes %s", k.Source)
		p.source = k.Source
	}
	p.hop(hop)
	p.kernelRules = append(p.kernelRules, k.NAT.Rules...)
	if k.ToBridge {
		t.ask(p, Question{Node: q.Node, About: AboutBridge, Source: p.source, Host: true})
		return
	}
	t.leaves(p, q.Node, k.Interface)
}

// bridge adds what the external bridge of a node does to the path.
func (t *Tracer) bridge(p *Path, q Question, b Bridge) {
	hop := Hop{Kind: HopBridge, Name: b.Name, Node: q.Node}
	for _, f := range b.Flows {
		if f.Missed {
			hop.Facts = append(hop.Facts, fmt.Sprintf("table %d: no flow matches", f.Table))
			continue
		}
		hop.Facts = append(hop.Facts, fmt.Sprintf("table %d priority %d %s: %s", f.Table, f.Priority, matchText(f.Match), strings.Join(f.Actions, ", ")))
	}
	if b.Source.IsValid() && b.Source != p.source {
		hop.Facts = append(hop.Facts, "source becomes "+b.Source.String())
		p.source = b.Source
	}
	p.hop(hop)
	if f, ok := b.Dropped(); ok {
		p.dropped(fmt.Sprintf("bridge %s of node %s drops it: table %d priority %d %s", b.Name, q.Node, f.Table, f.Priority, matchText(f.Match)))
		return
	}
	switch {
	case len(b.Flows) == 0:
		p.unknown(q.Node, ReasonNoAnswer, "the bridge says nothing of the packet")
	case slices.Contains(b.Outputs, "LOCAL") && !q.Host:
		p.arrives(q.Node, "the node itself")
	case len(b.Outputs) == 0: // as a switch
		t.leaves(p, q.Node, b.Name)
	default:
		t.leaves(p, q.Node, b.Outputs[0])
	}
}

func matchText(match string) string {
	if match == "" || match == "1" {
		return "everything"
	}
	return match
}
