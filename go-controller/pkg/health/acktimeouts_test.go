package health

import (
	"slices"
	"testing"
	"time"
)

// TestLapses: a node times out if the same acknowledgement is pending for the whole limit, and is
// given something again when it acknowledges anything, or after a while.
func TestLapses(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewAckTimeouts(5 * time.Second)
	l.now = func() time.Time { return now }
	owe := func(after time.Duration, timedOut []string, again time.Duration, acks ...PendingAck) {
		t.Helper()
		now = now.Add(after)
		if got, next := l.SetPending("prod", acks); !slices.Equal(got, timedOut) || next != again {
			t.Errorf("at %s: lapsed %v, again in %s; want %v, %s", now.UTC().Format("05"), got, next, timedOut, again)
		}
	}
	take, other := PendingAck{"worker", "take 172.18.0.33"}, PendingAck{"worker2", "take 172.18.0.44"}
	owe(0, nil, 5*time.Second, take)
	owe(4*time.Second, nil, time.Second, take, other)
	owe(time.Second, []string{"worker"}, 4*time.Second, take, other)
	owe(time.Second, nil, 3*time.Second, take, other) // reported only once
	owe(time.Second, nil, 5*time.Second, PendingAck{"worker2", "take 172.18.0.55"})
	owe(4*time.Second, nil, 5*time.Second, take) // it was not pending in between
	if !l.TimedOut("worker") || l.TimedOut("worker2") {
		t.Errorf("worker %v, worker2 %v", l.TimedOut("worker"), l.TimedOut("worker2"))
	}
	if !l.Acknowledged("worker") || l.TimedOut("worker") || l.Acknowledged("worker") {
		t.Error("a node that is heard of is as before")
	}
	owe(5*time.Second, []string{"worker"}, 5*time.Second, take)
	if now = now.Add(l.Pause("worker")); l.TimedOut("worker") {
		t.Error("a node is given nothing for ever")
	}
	owe(0, []string{"worker"}, 5*time.Second, take) // still not acknowledged
	owe(0, nil, 0)
}

// TestLapsesForEver: without a limit no node times out.
func TestLapsesForEver(t *testing.T) {
	l := NewAckTimeouts(0)
	for range 2 {
		if timedOut, again := l.SetPending("prod", []PendingAck{{"worker", "take"}}); timedOut != nil || again != 0 {
			t.Errorf("lapsed %v, again in %s", timedOut, again)
		}
	}
	if l.TimedOut("worker") {
		t.Error("a node has lapsed")
	}
}
