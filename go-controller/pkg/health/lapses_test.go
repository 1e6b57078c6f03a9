package health

import (
	"slices"
	"testing"
	"time"
)

// TestLapses: a node lapses when it has owed one and the same thing for the whole limit, and
// is given something again when it is heard of, or after a while.
func TestLapses(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewLapses(5 * time.Second)
	l.now = func() time.Time { return now }
	owe := func(after time.Duration, lapsed []string, again time.Duration, debts ...Debt) {
		t.Helper()
		now = now.Add(after)
		if got, next := l.Owe("prod", debts); !slices.Equal(got, lapsed) || next != again {
			t.Errorf("at %s: lapsed %v, again in %s; want %v, %s", now.UTC().Format("05"), got, next, lapsed, again)
		}
	}
	take, other := Debt{"worker", "take 172.18.0.33"}, Debt{"worker2", "take 172.18.0.44"}
	owe(0, nil, 5*time.Second, take)
	owe(4*time.Second, nil, time.Second, take, other)
	owe(time.Second, []string{"worker"}, 4*time.Second, take, other)
	owe(time.Second, nil, 3*time.Second, take, other) // said once
	owe(time.Second, nil, 5*time.Second, Debt{"worker2", "take 172.18.0.55"})
	owe(4*time.Second, nil, 5*time.Second, take) // it was not owed meanwhile
	if !l.Lapsed("worker") || l.Lapsed("worker2") {
		t.Errorf("worker %v, worker2 %v", l.Lapsed("worker"), l.Lapsed("worker2"))
	}
	if !l.Heard("worker") || l.Lapsed("worker") || l.Heard("worker") {
		t.Error("a node that is heard of is as before")
	}
	owe(5*time.Second, []string{"worker"}, 5*time.Second, take)
	if now = now.Add(l.Pause()); l.Lapsed("worker") {
		t.Error("a node is given nothing for ever")
	}
	owe(0, []string{"worker"}, 5*time.Second, take) // it still owes that
	owe(0, nil, 0)
}

// TestLapsesForEver: without a limit nobody lapses.
func TestLapsesForEver(t *testing.T) {
	l := NewLapses(0)
	for range 2 {
		if lapsed, again := l.Owe("prod", []Debt{{"worker", "take"}}); lapsed != nil || again != 0 {
			t.Errorf("lapsed %v, again in %s", lapsed, again)
		}
	}
	if l.Lapsed("worker") {
		t.Error("a node has lapsed")
	}
}
