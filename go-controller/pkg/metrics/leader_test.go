package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/version"
)

// lacks fails if a line begins with one of prefixes.
func lacks(t *testing.T, s *Set, prefixes ...string) {
	t.Helper()
	for line := range strings.Lines(read(t, s)) {
		for _, p := range prefixes {
			if strings.HasPrefix(line, p) {
				t.Errorf("unexpected: %s", line)
			}
		}
	}
}

// TestOnlyTheLeaderReports: a process that is not the leader does not report the leader's metrics, not even as
// zero.
func TestOnlyTheLeaderReports(t *testing.T) {
	s := full(t)
	has(t, s, `ovnkube_egress_objects{kind="x",reason="b",status="True",type="a"} 1`)
	s.SetLeader(false)
	for _, d := range All() {
		if d.Of == leading {
			lacks(t, s, d.Name)
		}
	}
	s.SetLeader(true)
	has(t, s, `ovnkube_egressip_addresses{node="n1",state="assigned"} 1`)
}

// TestNoLeader: controllers work without a Leader.
func TestNoLeader(*testing.T) {
	var l *Leader
	l.Moved("x", "y")
	l.PodStarted(time.Second, true)
	l.Decided("x", "o", "n1")
	l.Acknowledged("x", "o")
	l.Programmed("x", "o")
}

func TestObjects(t *testing.T) {
	s := New(version.Info{})
	s.SetLeader(true)
	at := func(seconds int64, is, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionStatus(is), Reason: reason,
			LastTransitionTime: metav1.Unix(seconds, 0)}}
	}
	all := [][]metav1.Condition{at(300, "False", "WaitingForNode"), at(100, "False", "WaitingForNode"), at(200, "True", "Programmed"),
		at(200, "False", "WaitingForNode"), nil}
	s.Leader().Objects("EgressIP", func(visit func([]metav1.Condition)) {
		for _, conditions := range all {
			visit(conditions)
		}
	})
	waiting := `kind="EgressIP",reason="WaitingForNode",status="False",type="Programmed"`
	has(t, s, "ovnkube_egress_objects{"+waiting+"} 3", "ovnkube_egress_condition_oldest_transition_timestamp_seconds{"+waiting+"} 100",
		`ovnkube_egress_objects{kind="EgressIP",reason="Programmed",status="True",type="Programmed"} 1`)
	s.Leader().Objects("AdminPolicyBasedExternalRoute", func(visit func([]metav1.Condition)) {
		visit([]metav1.Condition{{Type: "Conflict", Status: "False", Reason: "NoConflict"}, {Type: "Conflicting", Status: "False", Reason: "NoConflict"}})
	})
	has(t, s, `ovnkube_egress_objects{kind="AdminPolicyBasedExternalRoute",reason="NoConflict",status="False",type="Conflict"} 1`)
	lacks(t, s, `ovnkube_egress_objects{kind="AdminPolicyBasedExternalRoute",reason="NoConflict",status="False",type="Conflicting"}`)
	all = all[2:3]
	lacks(t, s, "ovnkube_egress_objects{"+waiting)
}

func TestReachability(t *testing.T) {
	s := New(version.Info{})
	s.SetLeader(true)
	s.Leader().Reachability(func(yield func(string, place.Reach, time.Duration)) {
		yield("n1", place.Alive, 20*time.Millisecond)
		yield("n2", place.Unknown, 0)
	})
	has(t, s, `ovnkube_node_reachability{node="n1",state="alive"} 1`, `ovnkube_node_reachability{node="n1",state="dead"} 0`,
		`ovnkube_node_reachability{node="n2",state="unknown"} 1`, `ovnkube_node_reachability{node="n2",state="alive"} 0`,
		`ovnkube_node_probe_last_duration_seconds{node="n1"} 0.02`)
	lacks(t, s, `ovnkube_node_probe_last_duration_seconds{node="n2"}`)
}

func TestResults(t *testing.T) {
	s := New(version.Info{})
	s.SetLeader(true)
	l := s.Leader()
	l.Probed(time.Millisecond, true, true)
	l.Probed(time.Second, false, true)
	l.Probed(time.Second, false, false)
	l.Transaction(time.Millisecond, 1, 2, 3, nil)
	l.Transaction(time.Second, 10, 10, 10, errors.New("refused"))
	l.Moved("EgressIP", "unreachable", "", "unreachable")
	l.PodStarted(time.Second, true)
	l.PodStarted(5*time.Second, false)
	for _, result := range []string{"answered", "silent", "failed"} {
		has(t, s, fmt.Sprintf(`ovnkube_node_probe_duration_seconds_count{result=%q} 1`, result))
	}
	has(t, s, `ovnkube_northbound_transaction_duration_seconds_count{result="committed"} 1`,
		`ovnkube_northbound_transaction_duration_seconds_count{result="failed"} 1`,
		`ovnkube_northbound_rows_written_total{operation="insert"} 1`, `ovnkube_northbound_rows_written_total{operation="update"} 2`,
		`ovnkube_northbound_rows_written_total{operation="delete"} 3`,
		`ovnkube_egress_moves_total{kind="EgressIP",reason="unreachable"} 2`, `ovnkube_egress_moves_total{kind="EgressIP",reason="other"} 1`,
		`ovnkube_pod_start_held_duration_seconds_count{result="programmed"} 1`,
		`ovnkube_pod_start_held_duration_seconds_count{result="timed_out"} 1`)
}

// TestMovesFromZero: the first move of a kind and reason increases an existing counter.
func TestMovesFromZero(t *testing.T) {
	s := New(version.Info{})
	s.SetLeader(true)
	s.Leader().Moves("EgressIP", place.Unreachable, "is cordoned")
	for _, reason := range []string{"unreachable", "is cordoned", "other"} {
		has(t, s, fmt.Sprintf(`ovnkube_egress_moves_total{kind="EgressIP",reason=%q} 0`, reason))
	}
	s.Leader().Moved("EgressIP", "is cordoned")
	has(t, s, `ovnkube_egress_moves_total{kind="EgressIP",reason="is cordoned"} 1`)
}

// TestFailover: each stage is measured once, from the node's last answer, and only if the node was found dead
// because it stopped answering.
func TestFailover(t *testing.T) {
	count := func(stage string, n int) string {
		return fmt.Sprintf(`ovnkube_egress_failover_duration_seconds_count{kind="EgressIP",stage=%q} %d`, stage, n)
	}
	slow := func(stage string, n int) string { // after more than ten seconds
		return fmt.Sprintf(`ovnkube_egress_failover_duration_seconds_bucket{kind="EgressIP",stage=%q,le="10"} %d`, stage, n)
	}
	s := New(version.Info{})
	s.SetLeader(true)
	l := s.Leader()
	l.Changed("n1", place.Dead, time.Now().Add(-20*time.Second))
	l.Changed("n2", place.Dead, time.Now().Add(-time.Hour))
	l.Changed("n3", place.Dead, time.Time{}) // never answered
	has(t, s, `ovnkube_node_failure_detection_duration_seconds_count 2`, `ovnkube_node_failure_detection_duration_seconds_bucket{le="10"} 0`,
		`ovnkube_node_failure_detection_duration_seconds_bucket{le="30"} 1`)

	l.Decided("EgressIP", "a", "n1")
	l.Decided("EgressIP", "b", "n3")
	l.Decided("EgressIP", "c")
	has(t, s, count("decided", 1), slow("decided", 0))
	has(t, s, count("acknowledged", 0), count("programmed", 0))
	for range 2 {
		l.Acknowledged("EgressIP", "a")
		l.Acknowledged("EgressIP", "c")
	}
	has(t, s, count("acknowledged", 1))
	for range 2 {
		l.Programmed("EgressIP", "a")
		l.Programmed("EgressIP", "b")
	}
	has(t, s, count("acknowledged", 1), count("programmed", 1))

	// An object that is acknowledged and programmed at once; of two nodes, the one that died first counts.
	l.Decided("EgressIP", "a", "n1", "n2")
	l.Programmed("EgressIP", "a")
	hour := func(stage string, n int) string {
		return fmt.Sprintf(`ovnkube_egress_failover_duration_seconds_bucket{kind="EgressIP",stage=%q,le="60"} %d`, stage, n)
	}
	has(t, s, count("acknowledged", 2), count("programmed", 2), hour("programmed", 1))

	// Another decision ends the measurement, and so does the return of the node.
	l.Decided("EgressIP", "a", "n1")
	l.Decided("EgressIP", "a")
	l.Programmed("EgressIP", "a")
	l.Changed("n1", place.Alive, time.Now())
	l.Decided("EgressIP", "a", "n1")
	l.Programmed("EgressIP", "a")
	has(t, s, count("decided", 3), count("programmed", 2))
	if f := l.failovers; len(f.open) != 0 || len(f.deaths) != 1 {
		t.Errorf("remembered: %v, %v", f.open, f.deaths)
	}
}

// BenchmarkScrape reads the conditions of 12,000 objects.
func BenchmarkScrape(b *testing.B) {
	s := New(version.Info{})
	s.SetLeader(true)
	conditions := []metav1.Condition{{Type: "Assigned", Status: "True", Reason: "Assigned"}, {Type: "Programmed", Status: "True", Reason: "Programmed"},
		{Type: "Conflict", Status: "False", Reason: "NoConflict"}}
	s.Leader().Objects("EgressIP", func(visit func([]metav1.Condition)) {
		for range 12000 {
			visit(conditions)
		}
	})
	for b.Loop() {
		if _, err := s.registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
