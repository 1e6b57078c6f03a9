package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/health/reachability"
)

// published makes the master publish another state of worker2.
func published(state reachability.State, d time.Duration) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Reachability.Nodes["ovn-worker2"] = reachability.Node{State: state, Since: taken.Add(-d)}
	}
}

// masterGone: no master has been running for an hour, and its publications are as old.
func masterGone(s *Snapshot) {
	s.Renewed, s.Reachability.AsOf = taken.Add(-time.Hour), taken.Add(-time.Hour-20*time.Second)
}

// TestReachability: the published state is shown, and is used for planning as
// long as a master keeps it up to date.
func TestReachability(t *testing.T) {
	const (
		presumed = "a node that is Ready counts as reachable"
		never    = "is not known"
		old      = "too old to rely on"
	)
	for _, tc := range []struct {
		name           string
		change         func(*Snapshot)
		cell, node     string // in the table of the status, and in the answer about the node
		holder         string // of the address
		problems, note string
	}{
		{"it answers", func(*Snapshot) {}, "within 2 ms", "it answers the master's probes within 2 ms, since 2026-03-01T11:00:00Z (1h0m0s)", "ovn-worker2", "", ""},
		{"it answers, and how fast is not known", published(reachability.Reachable, time.Minute), "yes",
			"it answers the master's probes, since 2026-03-01T11:59:00Z (1m0s)", "ovn-worker2", "", ""},
		{"it is silent", published(reachability.Unreachable, 40*time.Second), "no (40s)",
			"it does not answer the master's probes, since 2026-03-01T11:59:20Z (40s)", "ovn-worker", "NodeUnreachable,StatusDiffers,Waiting", ""},
		{"it has not answered yet", published(reachability.Unknown, time.Second), "no answer yet",
			"it has not answered the master's probes yet, since 2026-03-01T11:59:59Z (1s)", "ovn-worker2", "", ""},
		{"it is not probed", func(s *Snapshot) { delete(s.Reachability.Nodes, "ovn-worker2") }, "not probed", "the master does not probe it", "ovn-worker2", "", ""},
		{"nothing is published", func(s *Snapshot) { s.Reachability = nil }, "not known", "", "ovn-worker2", "", never},
		{"it was silent when a master was there", func(s *Snapshot) { published(reachability.Unreachable, 2*time.Hour)(s); masterGone(s) }, "no (2h0m0s)",
			"it does not answer the master's probes, since 2026-03-01T10:00:00Z (2h0m0s)", "ovn-worker2", "MasterSilent", old},
		{"it was silent when the master went", func(s *Snapshot) {
			published(reachability.Unreachable, 3*time.Minute)(s)
			s.Renewed, s.Reachability.AsOf = taken.Add(-2*time.Minute), taken.Add(-3*time.Minute)
		}, "no (3m0s)", "it does not answer the master's probes, since 2026-03-01T11:57:00Z (3m0s)", "ovn-worker2", "MasterSilent", old},
		{"it was silent when somebody last said so", func(s *Snapshot) {
			published(reachability.Unreachable, 2*time.Hour)(s)
			s.Reachability.AsOf = taken.Add(-2*reachability.Refresh - time.Second)
		}, "no (2h0m0s)", "it does not answer the master's probes, since 2026-03-01T10:00:00Z (2h0m0s)", "ovn-worker2", "", old},
		{"it is silent, and whether a master is there is not known", func(s *Snapshot) { published(reachability.Unreachable, time.Minute)(s); s.Renewed = time.Time{} },
			"no (1m0s)", "it does not answer the master's probes, since 2026-03-01T11:59:00Z (1m0s)", "ovn-worker", "NodeUnreachable,StatusDiffers,Waiting", ""},
		{"it is not Ready either", func(s *Snapshot) {
			published(reachability.Unreachable, 40*time.Second)(s)
			notReady("ovn-worker2")(s)
		}, "no (40s)",
			"it does not answer the master's probes, since 2026-03-01T11:59:20Z (40s)", "ovn-worker", "NodeNotReady,StatusDiffers,Waiting", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := cluster(t, egressIP("prod", "prod", "172.18.0.33"), inForce, tc.change)
			status := c.Status()
			var text strings.Builder
			status.Text(&text)
			_, row, _ := strings.Cut(text.String(), "\novn-worker2 ")
			row, _, _ = strings.Cut(row, "\n")
			if !strings.Contains(row, "eady   "+tc.cell+"   ") {
				t.Errorf("the row of the node is %q, want %q", row, tc.cell)
			}
			if got := reasonsOf(status.Problems); got != tc.problems {
				t.Errorf("problems %q, want %q", got, tc.problems)
			}
			notes := strings.Join(status.Notes, "\n")
			if !strings.Contains(notes, tc.note) || strings.Contains(notes, presumed) != (tc.note != "") {
				t.Errorf("notes %q, want %q", notes, tc.note)
			}
			answer, err := c.Node("ovn-worker2")
			if err != nil {
				t.Fatal(err)
			}
			text.Reset()
			answer.Text(&text)
			if lines := strings.Split(text.String(), "\n"); tc.node != "" && lines[1] != "  "+tc.node || tc.node == "" && !strings.HasPrefix(lines[1], "  +") {
				t.Errorf("line of the node %q, want %q", lines[1], tc.node)
			}
			if ip, err := c.EgressIP("prod"); err != nil || ip.Addresses[0].Node != tc.holder {
				t.Errorf("%v, the address is planned for %q, want %q", err, ip.Addresses[0].Node, tc.holder)
			}
		})
	}
}

// TestReachabilityInForce: the master's actions for a node that it cannot reach are according to
// plan, long before Kubernetes gives up the node.
func TestReachabilityInForce(t *testing.T) {
	c := cluster(t, egressIP("prod", "prod", "172.18.0.33"), published(reachability.Unreachable, 5*time.Second), inForce)
	if got := reasonsOf(c.Status().Problems); got != "NodeUnreachable" {
		t.Errorf("problems %q", got)
	}
}
