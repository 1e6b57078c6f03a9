package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Period is the time during which an assignment held, or a pod left with an address.
type Period struct {
	Object Object `json:"object"`
	// Address is absent if the node's routes decide.
	Address string `json:"address,omitempty"`
	// Node is the node that has the address; absent for the period of a pod.
	Node string `json:"node,omitempty"`
	// Pod is the pod that leaves with the address; absent for the period of a node.
	Pod *Pod `json:"pod,omitempty"`
	// Begin is when it began.
	Begin Moment `json:"begin"`
	// End is when it ended; absent if the records show no end.
	End *Moment `json:"end,omitempty"`
}

// Moment is when something changed.
type Moment struct {
	Time time.Time `json:"time"`
	// Observed means that the change was not recorded when it was made; the next leader noticed it.
	Observed bool `json:"observed,omitempty"`
	// After is the last time at which an observed change had not happened yet; absent if the records do not go back
	// that far.
	After *time.Time `json:"after,omitempty"`
	// Reason and Message are copied from the record.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// notYet reports whether the change cannot have happened by a time.
func (m Moment) notYet(at time.Time) bool {
	if m.Observed {
		return m.After != nil && !at.After(*m.After)
	}
	return at.Before(m.Time)
}

// Gap is a range of missing records of a term.
type Gap struct {
	Leader string    `json:"leader"`
	Term   time.Time `json:"term"`
	// First and Last are the first and the last missing sequence.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// After and Before are the times of the records before and after the gap.
	After  time.Time `json:"after"`
	Before time.Time `json:"before"`
}

// String returns a sentence without a full stop.
func (g Gap) String() string {
	return fmt.Sprintf("records %d to %d of leader %s, between %s and %s, are missing",
		g.First, g.Last, g.Leader, g.After.UTC().Format(time.RFC3339Nano), g.Before.UTC().Format(time.RFC3339Nano))
}

// Timeline is the combined content of records.
type Timeline struct {
	Periods []Period
	Gaps    []Gap
	// First and Last are the times of the first and the last record; Count is the number of records, without
	// duplicates.
	First, Last time.Time
	Count       int

	open  map[factKey]open
	epoch int        // increases with each statement of the current state
	prior *time.Time // the last record of the previous epoch
}

// open is a period that has not ended.
type open struct {
	index int // in Periods
	epoch int // in which it was last mentioned
}

// NewTimeline combines records, in any order and possibly with duplicates. Terms do not overlap: the one that
// started first comes first, whatever its clock showed towards its end.
func NewTimeline(records []Record) *Timeline {
	sorted := slices.Clone(records)
	slices.SortStableFunc(sorted, func(a, b Record) int {
		return cmp.Or(a.Term.Compare(b.Term), cmp.Compare(a.Leader, b.Leader), cmp.Compare(a.Sequence, b.Sequence))
	})
	sorted = slices.CompactFunc(sorted, func(a, b Record) bool {
		return a.Term.Equal(b.Term) && a.Leader == b.Leader && a.Sequence == b.Sequence
	})
	t := &Timeline{open: map[factKey]open{}, Count: len(sorted)}
	for i, r := range sorted {
		var before *Record
		if i > 0 {
			before = &sorted[i-1]
		} else {
			t.First = r.Time
		}
		t.follow(before, r)
		t.add(r)
		if r.Time.After(t.Last) {
			t.Last = r.Time
		}
	}
	return t
}

// follow checks for a gap between two records, and starts a new epoch at a statement.
func (t *Timeline) follow(before *Record, r Record) {
	same := before != nil && before.Term.Equal(r.Term) && before.Leader == r.Leader
	next := int64(1)
	if same {
		next = before.Sequence + 1
	}
	complete := r.Sequence == next || !same && (r.Type == TypeFound || r.Type == TypeComplete) // the head of a file
	if !complete {
		g := Gap{Leader: r.Leader, Term: r.Term, First: next, Last: r.Sequence - 1, After: r.Term, Before: r.Time}
		if same {
			g.After = before.Time
		}
		t.Gaps = append(t.Gaps, g)
	}
	if same && complete && r.Type != TypeLost {
		return
	}
	t.epoch++
	if before != nil {
		prior := before.Time
		t.prior = &prior
	}
}

// add applies one record.
func (t *Timeline) add(r Record) {
	switch r.Type {
	case TypeStarted, TypeLost:
	case TypeComplete:
		for _, k := range t.unmentioned() {
			t.end(k, t.observed(r))
		}
	case TypeReleased, TypePodRemoved:
		t.end(keyOf(*r.Object, r.Address, r.Pod), Moment{Time: r.Time, Reason: r.Reason, Message: r.Message})
	case TypeFound:
		t.begin(r, t.observed(r))
	case TypeAssigned, TypePodAdded:
		t.begin(r, Moment{Time: r.Time, Reason: r.Reason, Message: r.Message})
	}
}

// unmentioned returns what was not mentioned in this epoch, sorted.
func (t *Timeline) unmentioned() []factKey {
	var keys []factKey
	for k, o := range t.open {
		if o.epoch != t.epoch {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// observed returns the moment of a change that only the comparison of statements shows.
func (t *Timeline) observed(r Record) Moment {
	return Moment{Time: r.Time, Observed: true, After: t.prior}
}

func (t *Timeline) begin(r Record, m Moment) {
	p := Period{Object: *r.Object, Address: r.Address, Pod: r.Pod, Begin: m}
	if r.Pod == nil {
		p.Node = r.To
	}
	k := keyOf(*r.Object, r.Address, r.Pod)
	if o, ok := t.open[k]; ok {
		was := &t.Periods[o.index]
		if r.Type == TypeFound && was.Node == p.Node && !another(was.Object.UID, p.Object.UID) && (p.Pod == nil || !another(was.Pod.UID, p.Pod.UID)) {
			was.fill(p)
			t.open[k] = open{o.index, t.epoch}
			return
		}
		end := m
		if r.Pod != nil || r.From != was.Node { // it had ended before, which was not recorded
			end = t.observed(r)
		}
		t.end(k, end)
	}
	t.Periods = append(t.Periods, p)
	t.open[k] = open{len(t.Periods) - 1, t.epoch}
}

// fill fills in what was not known before.
func (p *Period) fill(is Period) {
	p.Object.UID = cmp.Or(p.Object.UID, is.Object.UID)
	if p.Pod != nil && is.Pod != nil {
		pod := *p.Pod
		pod.UID, pod.Node = cmp.Or(pod.UID, is.Pod.UID), cmp.Or(pod.Node, is.Pod.Node)
		p.Pod = &pod
	}
}

func (t *Timeline) end(k factKey, m Moment) {
	if o, ok := t.open[k]; ok {
		t.Periods[o.index].End = &m
		delete(t.open, k)
	}
}

// overlaps reports whether a period may have held at some time between from and to, inclusive; a zero time is no
// limit.
func (p Period) overlaps(from, to time.Time) bool {
	if !to.IsZero() && p.Begin.notYet(to) {
		return false
	}
	return p.End == nil || from.IsZero() || p.End.Time.After(from)
}

// certain reports whether a period certainly held at a time: an observed one may have begun later, or ended
// earlier.
func (p Period) certain(at time.Time) bool {
	return !p.Begin.Time.After(at) && (p.End == nil || p.End.notYet(at))
}
