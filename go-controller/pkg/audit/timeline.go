package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Period is how long an assignment held, or a pod left with an address.
type Period struct {
	Object Object `json:"object"`
	// Address is absent where the node's routes decide.
	Address string `json:"address,omitempty"`
	// Node has the address; absent where the period is a pod's.
	Node string `json:"node,omitempty"`
	// Pod leaves with the address; absent where the period is a node's.
	Pod *Pod `json:"pod,omitempty"`
	// Begin is when it began.
	Begin Moment `json:"begin"`
	// End is when it ended; absent where the records do not tell of an end.
	End *Moment `json:"end,omitempty"`
}

// Moment is when something changed.
type Moment struct {
	Time time.Time `json:"time"`
	// Observed: nobody recorded the change when it was made; the next leader saw it.
	Observed bool `json:"observed,omitempty"`
	// After is the last moment at which it had not changed yet, of one that was
	// observed; absent where the records do not go back as far.
	After *time.Time `json:"after,omitempty"`
	// Reason and Message are those of the record.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// notYet reports whether the change cannot have been made by a time.
func (m Moment) notYet(at time.Time) bool {
	if m.Observed {
		return m.After != nil && !at.After(*m.After)
	}
	return at.Before(m.Time)
}

// Gap says that records of a term are missing.
type Gap struct {
	Leader string    `json:"leader"`
	Term   time.Time `json:"term"`
	// First and Last are the sequences that are missing.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// After and Before are the times of the records around them.
	After  time.Time `json:"after"`
	Before time.Time `json:"before"`
}

// String is a sentence without a full stop.
func (g Gap) String() string {
	return fmt.Sprintf("records %d to %d of leader %s, between %s and %s, are missing",
		g.First, g.Last, g.Leader, g.After.UTC().Format(time.RFC3339Nano), g.Before.UTC().Format(time.RFC3339Nano))
}

// Timeline is what records say together.
type Timeline struct {
	Periods []Period
	Gaps    []Gap
	// First and Last are the times of the first and the last record; Count is how many
	// there are, without copies.
	First, Last time.Time
	Count       int

	open  map[factKey]open
	epoch int        // what is there is stated anew in each
	prior *time.Time // the last record of the epoch before
}

// open is a period that has not ended.
type open struct {
	index int // in Periods
	epoch int // in which it was last heard of
}

// NewTimeline puts records together. Their order does not matter, and neither do copies.
// Terms do not overlap: that which began first comes first, whatever its clock said
// towards its end.
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

// follow looks at what lies between two records.
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

// add takes over one record.
func (t *Timeline) add(r Record) {
	switch r.Type {
	case TypeStarted, TypeLost:
	case TypeComplete:
		for _, k := range t.silent() {
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

// silent returns what was not heard of in this epoch, in order.
func (t *Timeline) silent() []factKey {
	var keys []factKey
	for k, o := range t.open {
		if o.epoch != t.epoch {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// observed is the moment of a change that only the comparison shows.
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
		if r.Pod != nil || r.From != was.Node { // it had ended before, which nobody has recorded
			end = t.observed(r)
		}
		t.end(k, end)
	}
	t.Periods = append(t.Periods, p)
	t.open[k] = open{len(t.Periods) - 1, t.epoch}
}

// fill takes over what was not known before.
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

// overlaps reports whether a period may have held at some time from a moment to another,
// both included; a zero one does not limit.
func (p Period) overlaps(from, to time.Time) bool {
	if !to.IsZero() && p.Begin.notYet(to) {
		return false
	}
	return p.End == nil || from.IsZero() || p.End.Time.After(from)
}

// certain reports whether a period held at a moment for certain: one that was observed may
// have begun later, or ended earlier.
func (p Period) certain(at time.Time) bool {
	return !p.Begin.Time.After(at) && (p.End == nil || p.End.notYet(at))
}
