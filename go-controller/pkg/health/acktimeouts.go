package health

import (
	"slices"
	"sync"
	"time"
)

// pause is how many times the limit a node that timed out gets nothing that another can
// have, unless it is heard of before.
const pause = 12

// PendingAck is something that a node was asked for and has not acknowledged yet.
type PendingAck struct {
	Node string
	// What tells the pending acknowledgements of a node apart. One that says something else is a new one.
	What string
}

// AckTimeouts tells which nodes do not acknowledge in time what they are given, although
// they can be reached: the process that should do so does not run, or hangs. It is safe
// for concurrent use.
type AckTimeouts struct {
	limit time.Duration
	now   func() time.Time

	mu       sync.Mutex
	pending  map[string]map[PendingAck]time.Time // by object: since when
	timedOut map[string]time.Time                // by node: until when
}

// NewAckTimeouts returns AckTimeouts of nodes that take longer than limit; 0 is for ever.
func NewAckTimeouts(limit time.Duration) *AckTimeouts {
	return &AckTimeouts{limit: limit, now: time.Now, pending: map[string]map[PendingAck]time.Time{}, timedOut: map[string]time.Time{}}
}

// SetPending says all that is pending for an object. It returns the nodes that have timed out with
// that, and when to ask again; 0 where there is no need.
func (l *AckTimeouts) SetPending(object string, acks []PendingAck) (timedOut []string, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == 0 || len(acks) == 0 {
		delete(l.pending, object)
		return nil, 0
	}
	now, before, pending := l.now(), l.pending[object], map[PendingAck]time.Time{}
	for _, d := range acks {
		since, ok := before[d]
		if !ok {
			since = now
		}
		pending[d] = since
		left := since.Add(l.limit).Sub(now)
		if left <= 0 {
			if l.check(d.Node, now) {
				timedOut = append(timedOut, d.Node)
			}
			left = l.limit
		}
		if again == 0 || left < again {
			again = left
		}
	}
	l.pending[object] = pending
	slices.Sort(timedOut)
	return slices.Compact(timedOut), again
}

// check notes that a node has timed out, and returns whether that is new; mu is held.
func (l *AckTimeouts) check(node string, now time.Time) bool {
	until, was := l.timedOut[node]
	l.timedOut[node] = now.Add(pause * l.limit)
	return !was || !now.Before(until)
}

// Acknowledged says that a node has acknowledged something; it returns whether it had timed out.
func (l *AckTimeouts) Acknowledged(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, was := l.timedOut[node]
	delete(l.timedOut, node)
	return was && l.now().Before(until)
}

// TimedOut reports whether a node is given only what no other can have.
func (l *AckTimeouts) TimedOut(node string) bool { return l.Pause(node) > 0 }

// Pause returns how much longer that is so; 0 for a node that has not timed out.
func (l *AckTimeouts) Pause(node string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.timedOut[node].Sub(l.now()))
}
