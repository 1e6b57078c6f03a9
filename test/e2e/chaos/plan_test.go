package chaos

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

var cluster = Cluster{
	Nodes:   []string{"control", "worker", "worker2"},
	Central: []Process{{"master", true}, {"northd", false}},
	Local:   []Process{{"node", true}, {"switch", false}},
	Bridges: []string{"breth0", "br-int"},
	Kernel:  []string{"iptables", "rules"},
}

// TestPlan checks that the same seed yields the same steps, and that the first steps do not depend
// on the number of steps.
func TestPlan(t *testing.T) {
	all := Plan(7, 200, cluster)
	if again := Plan(7, 200, cluster); !reflect.DeepEqual(all, again) {
		t.Error("the same seed drew other steps")
	}
	if fewer := Plan(7, 20, cluster); !reflect.DeepEqual(all[:20], fewer) {
		t.Error("a lower number drew other steps")
	}
	if other := Plan(8, 200, cluster); reflect.DeepEqual(all, other) {
		t.Error("another seed drew the same steps")
	}
	const third = "3 partition worker2 at worker for 9s, during a change"
	if got := Plan(1, 3, cluster)[2].String(); got != third {
		t.Errorf("step 3 of seed 1 is %q, was always %q: what seeds repeat has changed", got, third)
	}
}

// TestPlanIsPossible checks that every kind is drawn, and only faults that can be injected.
func TestPlanIsPossible(t *testing.T) {
	const number = 5000
	drawn := map[Kind]int{}
	two := 0
	for i, s := range Plan(1, number, cluster) {
		if s.Number != i+1 {
			t.Errorf("step %d has the number %d", i+1, s.Number)
		}
		if len(s.Faults) == 2 {
			two++
			if a, b := s.Faults[0], s.Faults[1]; a == b || !together(a, b) {
				t.Errorf("%s: these do not go together", s)
			}
		}
		if s.Has(Disk) && !s.Change {
			t.Errorf("%s: nobody writes", s)
		}
		for _, f := range s.Faults {
			drawn[f.Kind]++
			ofProcess := f.Kind == Kill || f.Kind == Stop || f.Kind == CutOff
			central := slices.ContainsFunc(cluster.Central, func(p Process) bool { return p.Name == f.Target })
			switch {
			case ofProcess && central && f.Node != "control":
				t.Errorf("%s: it runs elsewhere", s)
			case f.Kind == CutOff && f.Target != "master" && f.Target != "node":
				t.Errorf("%s: it does not talk by TCP", s)
			case f.Kind == CutOff && f.For < 6*time.Second:
				t.Errorf("%s: connections may carry nothing for so long anyway", s)
			case f.Kind == Power && f.Node == "control":
				t.Errorf("%s: the databases would be lost", s)
			case f.Kind == Partition && f.Node == f.Target:
				t.Errorf("%s: from itself", s)
			case (f.For == 0) != (f.Kind == Kill || f.Kind == Bridge || f.Kind == Flush):
				t.Errorf("%s: lasts %s", s, f.For)
			}
		}
	}
	for _, kind := range kinds {
		if drawn[kind] == 0 {
			t.Errorf("%s was never drawn", kind)
		}
	}
	if drawn[Leader] > 0 {
		t.Error("a leader fails of databases that are not clustered")
	}
	if two < number/12 || two > number/8 {
		t.Errorf("two at once in %d of %d steps, want a tenth", two, number)
	}
}

// TestPlanOfClusteredDatabases checks that leaders fail, alone or with other leaders.
func TestPlanOfClusteredDatabases(t *testing.T) {
	clustered := cluster
	clustered.Databases = []string{"northbound", "southbound"}
	drawn := map[string]int{}
	for _, s := range Plan(1, 1000, clustered) {
		for _, f := range s.Faults {
			if f.Kind != Leader {
				continue
			}
			drawn[f.Target]++
			if f.Node != "" || f.For != 0 {
				t.Errorf("%s: the leader may be anywhere, and nothing reverts its end", s)
			}
			for _, other := range s.Faults {
				if other.Kind != Leader {
					t.Errorf("%s: both may be on one node", s)
				}
			}
		}
	}
	if len(drawn) != 2 {
		t.Errorf("drawn: %v", drawn)
	}
}

func TestTogether(t *testing.T) {
	partition := func(a, b string) Fault { return Fault{Kind: Partition, Node: a, Target: b} }
	for _, c := range []struct {
		a, b Fault
		want bool
	}{
		{partition("control", "worker"), partition("worker", "control"), false}, // the same two nodes
		{partition("control", "worker"), partition("worker2", "worker"), true},
		{partition("control", "worker"), Fault{Kind: Power, Node: "worker"}, false}, // without power nothing can be done
		{partition("control", "worker"), Fault{Kind: Power, Node: "worker2"}, true},
	} {
		if got := together(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %t", c.a, c.b, got)
		}
	}
}
