package trace

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/explain"
)

// Outcomes of a probe.
const (
	// ProbeConnected: the destination accepted the connection.
	ProbeConnected = "Connected"
	// ProbeAnswered: the destination replied with a datagram.
	ProbeAnswered = "Answered"
	// ProbeRefused: the connection was refused.
	ProbeRefused = "Refused"
	// ProbeUnanswered: there was no answer in time.
	ProbeUnanswered = "Unanswered"
	// ProbeFailed: the kernel could not send from the pod, or learned that the destination is unreachable.
	ProbeFailed = "Failed"
)

// Reasons of problems of probes.
const (
	// ReasonProbeDiffers: real packets leave differently than planned or traced.
	ReasonProbeDiffers = "ProbeDiffers"
	// ReasonProbeLost: real packets do not leave.
	ReasonProbeLost = "ProbeLost"
)

// Probed is what a node reports about a probe that it sent as one of its pods.
type Probed struct {
	// From is the source address and port of the probe.
	From netip.AddrPort `json:"from,omitzero"`
	// Outcome is one of the Probe constants; empty if not known.
	Outcome string `json:"outcome,omitempty"`
	// Why is the kernel's error if the probe failed.
	Why string `json:"why,omitempty"`
	// Milliseconds is how long the probe took.
	Milliseconds int64 `json:"milliseconds"`
}

// answered reports whether there was an answer.
func (p Probed) answered() bool {
	return slices.Contains([]string{ProbeConnected, ProbeAnswered, ProbeRefused}, p.Outcome)
}

// Connection is what a node knows of a connection, in the order in which the packets pass.
type Connection struct {
	Entries []Entry `json:"entries,omitempty"`
}

// Entry is an entry of connection tracking.
type Entry struct {
	// Table is where the entry is: in the kernel of the node, or in Open vSwitch.
	Table string `json:"table"`
	Zone  uint16 `json:"zone,omitempty"`
	// From is the source before translation, and Becomes the source after it.
	From    netip.AddrPort `json:"from"`
	Becomes netip.AddrPort `json:"becomes"`
}

// The tables of entries.
const (
	TableKernel = "kernel"
	TableSwitch = "Open vSwitch"
)

// source returns the source address after all translations; invalid if the node has no entry.
func (c Connection) source() netip.Addr {
	if len(c.Entries) == 0 {
		return netip.Addr{}
	}
	for _, e := range slices.Backward(c.Entries) {
		if e.Becomes != e.From {
			return e.Becomes.Addr()
		}
	}
	return c.Entries[0].From.Addr()
}

// Probe is the result of sending real packets, compared with the plan and the trace.
type Probe struct {
	Probed
	// Seen are the nodes that have entries for the connection.
	Seen []Seen `json:"seen,omitempty"`
	// AsPlanned reports whether nothing was observed that is not planned.
	AsPlanned bool              `json:"asPlanned"`
	Problems  []explain.Problem `json:"problems,omitempty"`
	Notes     []string          `json:"notes,omitempty"`

	queried    []string // nodes asked about the connection
	incomplete bool     // at least one of them did not answer
}

// Seen is what a node knows of the connection of a probe.
type Seen struct {
	Node string `json:"node"`
	// Left reports whether the probe is known to leave from there: it was translated, or the trace ends there.
	Left bool `json:"left"`
	// Source is the address that it continues with.
	Source  string  `json:"source"`
	Entries []Entry `json:"entries"`
}

// Probe makes the trace end with a probe of real packets. Call it before Next reports that there are no more
// questions.
func (t *Tracer) Probe() { t.probe = &Probe{} }

// probes adds the request to send a probe, once the paths are known. The nodes where it may have left are asked
// afterwards.
func (t *Tracer) probes() {
	if t.probe == nil || t.sent {
		return
	}
	t.sent = true
	t.ask(nil, Question{Node: t.plan.Node, About: AboutProbe, Pod: t.plan.Pod})
}

// answerProbe handles a node's answer to a request to send, or to a question about the connection.
func (t *Tracer) answerProbe(q Question, facts Facts, err error) {
	p := t.probe
	if err == nil && (q.About == AboutProbe && facts.Probed == nil || q.About == AboutConnection && facts.Connection == nil) {
		err = errors.New("is its ovnkube of another version?")
	}
	switch {
	case err != nil && q.About == AboutProbe:
		p.problem("Node/"+q.Node, ReasonSilent, fmt.Sprintf("node %s does not say whether it has sent: %v", q.Node, err))
	case err != nil:
		p.incomplete = true
		p.problem("Node/"+q.Node, ReasonSilent, fmt.Sprintf("node %s does not say what it remembers of the connection: %v", q.Node, err))
	case q.About == AboutProbe:
		p.Probed = *facts.Probed
		for _, node := range t.candidates() {
			t.ask(t.elsewhere(node), Question{Node: node, About: AboutConnection, Source: p.From.Addr(), Port: p.From.Port()})
			p.queried = append(p.queried, node)
		}
	case len(facts.Connection.Entries) > 0:
		source := facts.Connection.source()
		left := source != p.From.Addr() || slices.ContainsFunc(t.paths, func(w *Path) bool { return w.End == EndLeaves && w.Node == q.Node })
		p.Seen = append(p.Seen, Seen{q.Node, left, source.String(), facts.Connection.Entries})
	}
}

// candidates returns the nodes where it may have left: those of the trace, of the plan and of the pod.
func (t *Tracer) candidates() []string {
	var out []string
	add := func(node string) {
		if node != "" && !slices.Contains(out, node) {
			out = append(out, node)
		}
	}
	for _, p := range t.paths {
		add(p.Node)
	}
	for _, s := range t.family.Sources {
		add(s.Node)
	}
	add(t.plan.Node)
	return out
}

// elsewhere returns the path that ends on the node, if that is not the pod's node. There, a connection to a Service
// has the endpoint as destination; the translation is on the pod's own node.
func (t *Tracer) elsewhere(node string) *Path {
	for _, p := range t.paths {
		if p.Node == node && node != t.plan.Node {
			return p
		}
	}
	return nil
}

func (p *Probe) problem(object, reason, message string) {
	p.Problems = append(p.Problems, explain.Problem{Object: object, Reason: reason, Message: message})
}

func (p *Probe) note(text string) { p.Notes = append(p.Notes, text) }

// judge compares a probe with the plan and the trace.
func (t *Tracer) judge(p *Probe) {
	f := t.family
	leaves := slices.ContainsFunc(t.paths, func(w *Path) bool { return w.End == EndLeaves })
	left := slices.DeleteFunc(slices.Clone(p.Seen), func(s Seen) bool { return !s.Left })
	switch {
	case p.Outcome == "": // not sent
	case f.Outcome == explain.OutcomeDropped || f.Outcome == explain.OutcomeHeld:
		if p.answered() {
			p.problem(t.by(), ReasonProbeDiffers, "somebody answered, and nothing of this pod may leave: "+f.Why)
		}
	case len(left) > 0:
		for _, s := range left {
			t.judgeSource(p, s)
		}
		if !p.answered() {
			p.note("it left the node; the reason for the missing answer may be on the other side")
		}
	case p.incomplete || !leaves && !p.answered():
		p.note("its outcome is not known")
	case leaves && slices.ContainsFunc(t.paths, func(w *Path) bool { return w.several }):
		p.note("its outcome is not known: it may have been sent to another endpoint than the one in the trace")
	case leaves && p.answered():
		p.problem(t.by(), ReasonProbeDiffers, "somebody answered, and none of the nodes where it may leave remembers it: "+strings.Join(p.queried, ", "))
	case leaves:
		p.problem(t.by(), ReasonProbeLost, "none of the nodes where it may leave remembers it: "+strings.Join(p.queried, ", "))
	case !slices.ContainsFunc(t.paths, func(w *Path) bool { return w.End != EndDropped }):
		p.problem(t.by(), ReasonProbeDiffers, "somebody answered, and the trace says that it is dropped")
	}
	p.AsPlanned = p.Outcome != "" && len(p.Problems) == 0
}

// judgeSource compares the source address of a probe with the plan and the trace.
func (t *Tracer) judgeSource(p *Probe, seen Seen) {
	var planned []string
	ok := len(t.family.Sources) == 0
	for _, s := range t.family.Sources {
		planned = append(planned, sourceText(s))
		ok = ok || plannedAs(s, seen.Source, seen.Node)
	}
	switch {
	case !ok:
		p.problem(t.by(), ReasonProbeDiffers, fmt.Sprintf("it left with %s from node %s; planned: %s", seen.Source, seen.Node, strings.Join(planned, " or ")))
	case !slices.ContainsFunc(t.paths, func(w *Path) bool {
		return w.End != EndLeaves || w.Node == seen.Node && w.Source == seen.Source // other ends already have a problem
	}):
		p.problem(t.by(), ReasonProbeDiffers, fmt.Sprintf("it left with %s from node %s, and the trace says otherwise", seen.Source, seen.Node))
	}
}

// outcomes describe the outcomes of probes.
var outcomes = map[string]string{ProbeConnected: "connected", ProbeAnswered: "answered", ProbeRefused: "refused",
	ProbeUnanswered: "nobody answered", ProbeFailed: "failed"}

func (p Probe) text(w io.Writer, protocol string) {
	if p.Outcome == "" {
		fmt.Fprintln(w, "Probe: not known whether it was sent")
	} else {
		why := ""
		if p.Why != "" {
			why = ": " + p.Why
		}
		fmt.Fprintf(w, "Probe: %s from %s, %s after %d ms%s\n", strings.ToUpper(protocol), p.From, outcomes[p.Outcome], p.Milliseconds, why)
	}
	for _, s := range p.Seen {
		fmt.Fprintf(w, "  o node %s\n", s.Node)
		for _, e := range s.Entries {
			table := e.Table
			if e.Zone != 0 {
				table += fmt.Sprintf(", zone %d", e.Zone)
			}
			if e.From == e.Becomes {
				fmt.Fprintf(w, "  |   %s: source %s\n", table, e.From)
			} else {
				fmt.Fprintf(w, "  |   %s: source %s becomes %s\n", table, e.From, e.Becomes)
			}
		}
		fmt.Fprintln(w, "  |")
	}
	end := "not seen to leave"
	for _, s := range p.Seen {
		if s.Left {
			end = fmt.Sprintf("left node %s with source %s", s.Node, s.Source)
		}
	}
	ending(w, end, p.AsPlanned, p.Problems, p.Notes)
}
