package health

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// pause is for how many times the limit a node that timed out is given nothing that another node
// could have, unless it acknowledges something earlier.
const pause = 12

// busy is for how many times the limit an acknowledgement may be pending while the node acknowledges
// something else at least once within each limit. Such a node is at work, but slow, or the API server is: to give
// the rest to others would only cause more work.
const busy = 6

// beats is how many times within the limit this process checks whether it was stopped itself.
const beats = 5

// PendingAck is a request to a node that the node has not acknowledged yet.
type PendingAck struct {
	Node string
	// What distinguishes the pending acknowledgements of a node. A different What is a new one.
	What string
}

// AckTimeouts tracks which nodes do not acknowledge in time what they are given, although they are
// reachable: the responsible process is not running, or hangs. A node that acknowledges one thing after the other has
// more time for the rest. A standstill of this process itself blames nobody: it has not seen what the nodes acknowledged
// meanwhile. It is safe for concurrent use.
type AckTimeouts struct {
	limit time.Duration
	now   func() time.Time

	mu       sync.Mutex
	pending  map[string]map[PendingAck]time.Time // by object: since when
	timedOut map[string]time.Time                // by node: until when
	heard    map[string]time.Time                // by node: when it last acknowledged something
	beaten   time.Time                           // when this process is last known to have run
	beating  bool                                // it will be checked again, which is only needed while something is pending
}

// NewAckTimeouts returns AckTimeouts with a limit after which a node times out; 0 means never.
func NewAckTimeouts(limit time.Duration) *AckTimeouts {
	return &AckTimeouts{limit: limit, now: time.Now, pending: map[string]map[PendingAck]time.Time{}, timedOut: map[string]time.Time{},
		heard: map[string]time.Time{}}
}

// SetPending sets everything that is pending for an object. It returns the nodes that have now
// timed out, and when to call it again; 0 if there is no need.
func (l *AckTimeouts) SetPending(object string, acks []PendingAck) (timedOut []string, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == 0 || len(acks) == 0 {
		delete(l.pending, object)
		return nil, 0
	}
	l.beat()
	now, before, pending := l.now(), l.pending[object], map[PendingAck]time.Time{}
	for _, d := range acks {
		since, ok := before[d]
		if !ok {
			since = now
		}
		pending[d] = since
		left := l.deadline(d.Node, since).Sub(now)
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
	l.continueBeating()
	slices.Sort(timedOut)
	return slices.Compact(timedOut), again
}

// beat gives the nodes as much more time as this process did not run, if that was a while, and thus at least the time between two
// checks to see what they acknowledged meanwhile. mu is held.
func (l *AckTimeouts) beat() {
	now := l.now()
	if away := now.Sub(l.beaten); away > 3*l.limit/(2*beats) {
		for _, pending := range l.pending {
			for ack, since := range pending {
				if pending[ack] = since.Add(away); pending[ack].After(now) {
					pending[ack] = now
				}
			}
		}
	}
	l.beaten = now
}

// continueBeating has beat called again soon if anything is pending; mu is held.
func (l *AckTimeouts) continueBeating() {
	if l.beating || len(l.pending) == 0 {
		return
	}
	l.beating = true
	time.AfterFunc(max(l.limit/beats, time.Millisecond), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.beat()
		l.forget(l.now())
		l.beating = false
		l.continueBeating()
	})
}

// forget forgets what does not matter any more, so that nodes that are gone do not remain; mu is held.
func (l *AckTimeouts) forget(now time.Time) {
	maps.DeleteFunc(l.heard, func(_ string, at time.Time) bool { return now.Sub(at) > busy*l.limit })
	maps.DeleteFunc(l.timedOut, func(_ string, until time.Time) bool { return !now.Before(until) })
}

// IsPending reports whether anything is pending for an object.
func (l *AckTimeouts) IsPending(object string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending[object]) > 0
}

// deadline returns when a node times out if an acknowledgement has been pending since; mu is held.
func (l *AckTimeouts) deadline(node string, since time.Time) time.Time {
	deadline, last := since.Add(l.limit), since.Add(busy*l.limit)
	if extended := l.heard[node].Add(l.limit); extended.After(deadline) {
		deadline = extended
	}
	if deadline.After(last) {
		return last
	}
	return deadline
}

// check records that a node has timed out, and returns whether that is new; mu is held.
func (l *AckTimeouts) check(node string, now time.Time) bool {
	until, was := l.timedOut[node]
	l.timedOut[node] = now.Add(pause * l.limit)
	return !was || !now.Before(until)
}

// Acknowledged records that a node has acknowledged something; it returns whether the node had
// timed out.
func (l *AckTimeouts) Acknowledged(node string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	until, was := l.timedOut[node]
	delete(l.timedOut, node)
	l.heard[node] = now
	return was && now.Before(until)
}

// TimedOut reports whether a node is only given what no other node can have.
func (l *AckTimeouts) TimedOut(node string) bool { return l.Pause(node) > 0 }

// Pause returns how much longer TimedOut will be true; 0 for a node that has not timed out.
func (l *AckTimeouts) Pause(node string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.timedOut[node].Sub(l.now()))
}
