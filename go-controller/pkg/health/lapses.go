package health

import (
	"slices"
	"sync"
	"time"
)

// pause is how many times the limit a node that lapsed gets nothing new, unless it is
// heard of before.
const pause = 12

// Debt is something that a node was asked for and has not acknowledged yet.
type Debt struct {
	Node string
	// What tells the debts of a node apart. One that says something else is a new one.
	What string
}

// Lapses tells which nodes do not acknowledge in time what they are given, although
// they can be reached: the process that should do so does not run, or hangs. It is safe
// for concurrent use.
type Lapses struct {
	limit time.Duration
	now   func() time.Time

	mu     sync.Mutex
	owed   map[string]map[Debt]time.Time // by object: since when
	lapsed map[string]time.Time          // by node: until when
}

// NewLapses returns Lapses of nodes that take longer than limit; 0 is for ever.
func NewLapses(limit time.Duration) *Lapses {
	return &Lapses{limit: limit, now: time.Now, owed: map[string]map[Debt]time.Time{}, lapsed: map[string]time.Time{}}
}

// Owe says all that is owed for an object. It returns the nodes that have lapsed with
// that, and when to ask again; 0 where there is no need.
func (l *Lapses) Owe(object string, debts []Debt) (lapsed []string, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == 0 || len(debts) == 0 {
		delete(l.owed, object)
		return nil, 0
	}
	now, before, owed := l.now(), l.owed[object], map[Debt]time.Time{}
	for _, d := range debts {
		since, ok := before[d]
		if !ok {
			since = now
		}
		owed[d] = since
		left := since.Add(l.limit).Sub(now)
		if left <= 0 {
			if l.lapse(d.Node, now) {
				lapsed = append(lapsed, d.Node)
			}
			left = l.limit
		}
		if again == 0 || left < again {
			again = left
		}
	}
	l.owed[object] = owed
	slices.Sort(lapsed)
	return slices.Compact(lapsed), again
}

// lapse notes that a node has lapsed, and returns whether that is new; mu is held.
func (l *Lapses) lapse(node string, now time.Time) bool {
	until, was := l.lapsed[node]
	l.lapsed[node] = now.Add(pause * l.limit)
	return !was || !now.Before(until)
}

// Heard says that a node has acknowledged something; it returns whether it had lapsed.
func (l *Lapses) Heard(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, was := l.lapsed[node]
	delete(l.lapsed, node)
	return was && l.now().Before(until)
}

// Lapsed tells whether a node is given nothing new.
func (l *Lapses) Lapsed(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, was := l.lapsed[node]
	return was && l.now().Before(until)
}

// Pause is how long a node that lapsed is given nothing new.
func (l *Lapses) Pause() time.Duration { return pause * l.limit }
