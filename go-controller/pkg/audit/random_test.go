package audit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/seeds"
)

// masters is a random sequence of leaders that write to an API and record what they do, each in a file of its own.
// They die at random moments.
type masters struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Time
	api   map[string][]Fact    // by scope
	truth map[factKey][]string // the nodes that each had in turn; "" is none
	files []*files             // by master
	// unrecorded are the scopes with a change that no record mentions until the next statement is complete. If
	// there are two such changes of one fact, the first cannot be known.
	unrecorded map[string]bool
	events     []string
}

var scopes = []string{"EgressIP/a", "EgressIP/b", "pod prod/web", "pod prod/db"}

func (m *masters) tick() time.Time {
	m.now = m.now.Add(time.Duration(1+m.rng.IntN(500)) * time.Millisecond)
	return m.now
}

// any returns random facts for a scope.
func (m *masters) any(scope string) []Fact {
	var facts []Fact
	kind, name, _ := strings.Cut(scope, "/")
	for _, address := range []string{"172.18.0.33", "172.18.0.34"} {
		if m.rng.IntN(3) == 0 {
			continue
		}
		f := assignment(name, address, fmt.Sprint("n", m.rng.IntN(3)))
		if kind != "EgressIP" {
			f = use("a", address, "prod/"+name, "10.244.1.3")
		}
		facts = append(facts, f)
	}
	return facts
}

// write puts facts into the API, and remembers them as the truth from then on.
func (m *masters) write(scope string, facts []Fact) {
	was, is := byKey(m.api[scope]), byKey(facts)
	for k := range was {
		if _, still := is[k]; !still {
			m.truth[k] = append(m.truth[k], "")
		}
	}
	for k, f := range is {
		if old, there := was[k]; !there || old.Node != f.Node {
			m.truth[k] = append(m.truth[k], f.Node+"*")
		}
	}
	m.api[scope] = facts
}

// lead runs one term, which ends at a random moment, possibly with unwritten records.
func (m *masters) lead(master int) {
	clock := func() time.Time { // clocks are not reliable
		return m.tick().Add(time.Duration(m.rng.IntN(8000)-4000) * time.Millisecond)
	}
	m.now = m.now.Add(20 * time.Second) // the lease duration
	r := NewRecorder(fmt.Sprint("master-", master), clock, m.files[master])
	flush := func() {
		if err := r.flush(); err != nil {
			m.t.Fatal(err)
		}
	}
	unseen := slices.Clone(scopes)
	m.rng.Shuffle(len(unseen), func(i, j int) { unseen[i], unseen[j] = unseen[j], unseen[i] })
	see := func(scope string) {
		r.Found(scope, m.api[scope])
		unseen = slices.DeleteFunc(unseen, func(s string) bool { return s == scope })
	}
	m.events = append(m.events, fmt.Sprintf("%s leads", r.leader))
	for range m.rng.IntN(40) {
		switch {
		case len(unseen) > 0 && m.rng.IntN(2) == 0:
			see(unseen[0])
		case len(unseen) == 0 && m.rng.IntN(4) == 0:
			r.Complete()
			clear(m.unrecorded)
		default:
			scope := scopes[m.rng.IntN(len(scopes))]
			see(scope)
			flush() // what is found is recorded before another write of this object
			facts := m.any(scope)
			m.events = append(m.events, fmt.Sprintf("%s %v", scope, facts))
			m.write(scope, facts)
			killed := func() bool { return !m.unrecorded[scope] && m.rng.IntN(10) == 0 }
			if killed() {
				m.unrecorded[scope] = true
				m.events = append(m.events, "killed before it was recorded")
				return
			}
			r.Set(scope, facts, why)
			if killed() {
				m.unrecorded[scope] = true
				m.events = append(m.events, "killed before the record was written")
				return
			}
		}
		flush()
	}
}

// sequences returns the nodes that each fact had in turn, according to the records.
func sequences(tl *Timeline) map[factKey][]string {
	got := map[factKey][]string{}
	ended := map[factKey]*Moment{}
	for _, p := range tl.Periods {
		k := keyOf(p.Object, p.Address, p.Pod)
		if end := ended[k]; end != nil && *end != p.Begin { // it did not move
			got[k] = append(got[k], "")
		}
		got[k] = append(got[k], p.Node+"*")
		ended[k] = p.End
	}
	for k, end := range ended {
		if end != nil {
			got[k] = append(got[k], "")
		}
	}
	return got
}

// TestRandomLeaders: whatever leaders write, and whenever they are killed, between a write and its record or
// between the record and its file, their files together contain the truth, each change once, even if copies of the
// files are read too.
func TestRandomLeaders(t *testing.T) {
	seeds.Each(t, 200, func(t *testing.T, rng *rand.Rand) {
		m := &masters{t: t, rng: rng, now: start, api: map[string][]Fact{}, truth: map[factKey][]string{}, unrecorded: map[string]bool{},
			files: []*files{newFiles(), newFiles(), newFiles()}}
		for _, f := range m.files {
			f.max = 3000
		}
		for range 12 {
			m.lead(rng.IntN(3))
			// Objects are deleted while nobody leads.
			if scope := scopes[rng.IntN(len(scopes))]; !m.unrecorded[scope] && rng.IntN(3) == 0 {
				m.unrecorded[scope] = true
				m.events = append(m.events, "no "+scope)
				m.write(scope, nil)
			}
		}
		// The last leader stays long enough to see everything.
		m.now = m.now.Add(20 * time.Second)
		last := NewRecorder("master-0", m.tick, m.files[0])
		for _, scope := range scopes {
			last.Found(scope, m.api[scope])
		}
		last.Complete()
		if err := last.flush(); err != nil {
			t.Fatal(err)
		}
		var records []Record
		for _, f := range m.files {
			records = append(records, f.read(t, 0)...)
		}
		once := NewTimeline(records)
		records = append(records, records[:rng.IntN(len(records))]...)
		rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		got := NewTimeline(records)
		if len(got.Gaps) > 0 {
			t.Errorf("gaps: %v", got.Gaps)
		}
		if fmt.Sprint(got.Periods) == "" || len(got.Periods) != len(once.Periods) || got.Count != once.Count {
			t.Errorf("%d periods of %d records with copies, %d of %d without", len(got.Periods), got.Count, len(once.Periods), once.Count)
		}
		if is := sequences(got); !maps.EqualFunc(is, m.truth, slices.Equal) {
			for k := range m.truth {
				if !slices.Equal(is[k], m.truth[k]) {
					t.Errorf("%v:\nrecorded %q\ntrue     %q", k, is[k], m.truth[k])
				}
			}
			t.Errorf("history:\n%s", strings.Join(m.events, "\n"))
		}
	})
}
