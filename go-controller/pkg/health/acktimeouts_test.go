package health

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLapses: a node times out if the same acknowledgement is pending for the whole limit, and is
// given something again when it acknowledges anything, or after a while.
func TestLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewAckTimeouts(5 * time.Second)
		owe := func(after time.Duration, timedOut []string, again time.Duration, acks ...PendingAck) {
			t.Helper()
			<-time.After(after)
			if got, next := l.SetPending("prod", acks); !slices.Equal(got, timedOut) || next != again {
				t.Errorf("at %s: lapsed %v, again in %s; want %v, %s", time.Now().UTC().Format("05"), got, next, timedOut, again)
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
		if <-time.After(l.Pause("worker")); l.TimedOut("worker") {
			t.Error("a node is given nothing for ever")
		}
		owe(0, []string{"worker"}, 5*time.Second, take) // still not acknowledged
		owe(0, nil, 0)
	})
}

// TestBusyNode: a node that acknowledges one thing after the other does not time out for what is
// pending meanwhile, unless that takes many times the limit.
func TestBusyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := NewAckTimeouts(5 * time.Second)
		until := func(seconds int) { <-time.After(time.Until(start.Add(time.Duration(seconds) * time.Second))) }
		at := func(seconds int, timedOut []string, again time.Duration) {
			t.Helper()
			until(seconds)
			if got, next := l.SetPending("prod", []PendingAck{{"worker", "take"}}); !slices.Equal(got, timedOut) || next != again {
				t.Errorf("after %d s: timed out %v, again in %s; want %v, %s", seconds, got, next, timedOut, again)
			}
		}
		heard := func(seconds int) {
			until(seconds)
			l.Acknowledged("worker")
		}
		at(0, nil, 5*time.Second)
		heard(3)
		at(5, nil, 3*time.Second)
		heard(7)
		at(8, nil, 4*time.Second)
		at(12, []string{"worker"}, 5*time.Second) // silent for the whole limit
		for s := 13; s < 28; s += 3 {
			heard(s)
		}
		at(27, nil, 3*time.Second) // heard of at 25, but there is a limit to that
		at(29, nil, time.Second)
		at(30, []string{"worker"}, 5*time.Second)
		heard(31)
		at(32, []string{"worker"}, 5*time.Second) // other acknowledgements do not help any more
	})
}

// TestOwnStandstill: a process that was stopped itself has not seen what the nodes acknowledged meanwhile. It gives them
// as much more time, whether it notices by itself or is asked first.
func TestOwnStandstill(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    time.Duration // when it is stopped
		stop  time.Duration // and for how long
		after time.Duration // how long after it continues the question comes
		again time.Duration
	}{
		{name: "asked at once", at: 2500 * time.Millisecond, stop: 10 * time.Second, again: 3 * time.Second},
		{name: "asked later", at: 2500 * time.Millisecond, stop: 10 * time.Second, after: 3 * time.Second, again: 500 * time.Millisecond},
		{name: "just before the end", at: 4 * time.Second, stop: 1900 * time.Millisecond, again: time.Second},
		{name: "a moment only", at: 2500 * time.Millisecond, stop: time.Second, again: 1500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewAckTimeouts(5 * time.Second)
				var stopped atomic.Int64
				l.now = func() time.Time { return time.Now().Add(time.Duration(stopped.Load())) }
				acks := []PendingAck{{"worker", "take"}}
				l.SetPending("prod", acks)
				<-time.After(c.at)
				synctest.Wait()
				stopped.Store(int64(c.stop))
				<-time.After(c.after)
				synctest.Wait()
				if got, again := l.SetPending("prod", acks); len(got) > 0 || again != c.again {
					t.Errorf("timed out %v, again in %s, want %s", got, again, c.again)
				}
				<-time.After(c.again)
				if got, _ := l.SetPending("prod", acks); len(got) != 1 {
					t.Error("a node that stays silent does not time out")
				}
			})
		})
	}
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

// TestForgetsNodes: of nodes that are gone, nothing remains.
func TestForgetsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewAckTimeouts(5 * time.Second)
		for i := range 100 {
			l.Acknowledged(fmt.Sprint("former", i))
		}
		l.SetPending("prod", []PendingAck{{"former0", "take"}})
		<-time.After(5 * time.Second)
		if timedOut, _ := l.SetPending("prod", []PendingAck{{"former0", "take"}}); len(timedOut) != 1 {
			t.Errorf("timed out %v", timedOut)
		}
		<-time.After((pause + 1) * 5 * time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.heard) != 0 || len(l.timedOut) != 0 {
			t.Errorf("%d nodes heard of and %d timed out are left", len(l.heard), len(l.timedOut))
		}
		clear(l.pending)
	})
}
