package audit

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"
)

// Kinds of answers.
const (
	KindAddressHistory = "AddressHistory"
	KindPodHistory     = "PodHistory"
)

// History is the answer to a question about an address or a pod.
type History struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Address is the egress address, or Pod the pod ("namespace/name"), that was asked about.
	Address string `json:"address,omitempty"`
	Pod     string `json:"pod,omitempty"`
	// From and To are the time range that was asked about; absent where unlimited.
	From *time.Time `json:"from,omitempty"`
	To   *time.Time `json:"to,omitempty"`
	// Assignments are the nodes that had the address, or the nodes that had the pod's addresses.
	Assignments []Period `json:"assignments"`
	// Pods are the pods that left with the address, or the pod's addresses.
	Pods []Period `json:"pods"`
	// FirstRecord and LastRecord are the times of the first and the last record.
	FirstRecord *time.Time `json:"firstRecord,omitempty"`
	LastRecord  *time.Time `json:"lastRecord,omitempty"`
	// Records is the number of records, without duplicates.
	Records int `json:"records"`
	// Complete is false if something may be missing: Notes, Gaps and Problems say what.
	Complete bool      `json:"complete"`
	Notes    []string  `json:"notes,omitempty"`
	Gaps     []Gap     `json:"gaps,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
}

// AddressHistory returns who had an address, and who left with it, at the given time; at any time if that is zero.
func (t *Timeline) AddressHistory(a netip.Addr, at time.Time, problems []Problem) History {
	h := t.history(KindAddressHistory, at, at, problems)
	h.Address = a.String()
	for _, p := range t.Periods {
		if p.Address != h.Address || !p.overlaps(at, at) {
			continue
		}
		if !at.IsZero() && !p.certain(at) {
			h.note("what was observed by the next leader may have held at that time, or not: see the lines with \"?\"")
		}
		h.add(p)
	}
	h.sort()
	return h
}

// PodHistory returns the addresses that a pod, "namespace/name", left with since the given time.
func (t *Timeline) PodHistory(pod string, since, now time.Time, problems []Problem) History {
	h := t.history(KindPodHistory, since, now, problems)
	h.Pod = pod
	for _, p := range t.Periods {
		if p.Pod != nil && p.Pod.Key() == pod && p.overlaps(since, now) {
			h.add(p)
		}
	}
	for _, p := range t.Periods {
		if p.Pod == nil && p.overlaps(since, now) && slices.ContainsFunc(h.Pods, p.during) {
			h.add(p)
		}
	}
	h.sort()
	return h
}

// during reports whether an assignment is of the address that a pod left with, and overlaps the pod's period.
func (p Period) during(pod Period) bool {
	if keyOf(p.Object, p.Address, nil) != keyOf(pod.Object, pod.Address, nil) {
		return false
	}
	from, to := pod.Begin.Time, time.Time{}
	if pod.Begin.Observed {
		from = time.Time{}
		if pod.Begin.After != nil {
			from = *pod.Begin.After
		}
	}
	if pod.End != nil {
		to = pod.End.Time
	}
	return p.overlaps(from, to)
}

// history returns an answer with what the records themselves say about completeness.
func (t *Timeline) history(kind string, from, to time.Time, problems []Problem) History {
	h := History{APIVersion: APIVersion, Kind: kind, Assignments: []Period{}, Pods: []Period{}, Records: t.Count, Complete: true,
		Gaps: t.Gaps, Problems: problems}
	if !from.IsZero() {
		h.From = &from
	}
	if !to.IsZero() {
		h.To = &to
	}
	if len(t.Gaps) > 0 || len(problems) > 0 {
		h.Complete = false
	}
	if t.Count == 0 {
		h.note("there are no records")
		return h
	}
	first, last := t.First, t.Last
	h.FirstRecord, h.LastRecord = &first, &last
	if !from.IsZero() && from.Before(first) {
		h.note("the records begin later than the time that was asked about")
	}
	if kind == KindAddressHistory && to.After(last) {
		h.Notes = append(h.Notes, "the last record is older than the time that was asked about: nothing changed since, or other files tell")
	}
	return h
}

// note adds a reason why the answer may not be complete, unless it is already there.
func (h *History) note(text string) {
	h.Complete = false
	if !slices.Contains(h.Notes, text) {
		h.Notes = append(h.Notes, text)
	}
}

func (h *History) add(p Period) {
	if p.Pod == nil {
		h.Assignments = append(h.Assignments, p)
	} else {
		h.Pods = append(h.Pods, p)
	}
}

func (h *History) sort() {
	for _, all := range [][]Period{h.Assignments, h.Pods} {
		slices.SortStableFunc(all, func(a, b Period) int {
			return cmp.Or(a.Begin.Time.Compare(b.Begin.Time), compareKeys(keyOf(a.Object, a.Address, a.Pod), keyOf(b.Object, b.Address, b.Pod)))
		})
	}
}

// Text writes an answer in human-readable form.
func (h History) Text(w io.Writer) {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	switch {
	case h.Pod != "" && h.From != nil:
		fmt.Fprintf(w, "Pod %s since %s\n", h.Pod, stamp(*h.From))
	case h.Pod != "":
		fmt.Fprintf(w, "Pod %s\n", h.Pod)
	case h.From != nil:
		fmt.Fprintf(w, "Address %s at %s\n", h.Address, stamp(*h.From))
	default:
		fmt.Fprintf(w, "Address %s\n", h.Address)
	}
	fmt.Fprintln(w, "\nAssigned to")
	for _, p := range h.Assignments {
		what := "node " + p.Node + ", by " + p.Object.String()
		if h.Pod != "" && p.Address != "" {
			what = p.Address + " on " + what
		}
		h.period(w, p, what)
	}
	if len(h.Assignments) == 0 {
		fmt.Fprintln(w, "  no node")
	}
	fmt.Fprintln(w, "\nUsed by")
	for _, p := range h.Pods {
		what := "pod " + p.Pod.Key() + " " + p.Pod.Address
		if p.Pod.Node != "" {
			what += " on node " + p.Pod.Node
		}
		if h.Pod != "" {
			what = p.Address + " of " + p.Object.String() + ", for " + what
		}
		h.period(w, p, what)
	}
	if len(h.Pods) == 0 {
		fmt.Fprintln(w, "  no pod")
	}
	fmt.Fprintln(w)
	if h.FirstRecord != nil {
		fmt.Fprintf(w, "%d records, from %s to %s.\n", h.Records, stamp(*h.FirstRecord), stamp(*h.LastRecord))
	}
	for _, n := range h.Notes {
		fmt.Fprintf(w, "Note: %s.\n", n)
	}
	for _, g := range h.Gaps {
		fmt.Fprintf(w, "! %s\n", g)
	}
	for _, p := range h.Problems {
		fmt.Fprintf(w, "! %s\n", p)
	}
	if !h.Complete {
		fmt.Fprintln(w, "The answer may be incomplete.")
	}
}

// period writes one period.
func (h History) period(w io.Writer, p Period, what string) {
	mark := " "
	if h.Kind == KindAddressHistory && h.From != nil && !p.certain(*h.From) {
		mark = "?"
	}
	fmt.Fprintf(w, "%s %s\n      from  %s\n", mark, what, p.Begin.text())
	if p.End != nil {
		fmt.Fprintf(w, "      until %s\n", p.End.text())
	}
}

func (m Moment) text() string {
	text := m.Time.UTC().Format(time.RFC3339Nano)
	switch {
	case m.Observed && m.After != nil:
		text = "between " + m.After.UTC().Format(time.RFC3339Nano) + " and " + text + ", observed"
	case m.Observed:
		text = "before " + text + ", observed"
	}
	if m.Reason != "" {
		text += ", " + m.Reason
	}
	if m.Message != "" {
		text += ": " + m.Message
	}
	return text
}
