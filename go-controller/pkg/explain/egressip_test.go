package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
)

// samples compares an answer with the texts in the documentation.
func samples(t *testing.T, name string, answer interface{ Text(io.Writer) }) {
	t.Helper()
	var text strings.Builder
	answer.Text(&text)
	golden.Check(t, name+".txt", text.String())
	data, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, name+".json", string(data)+"\n")
}

func cluster(t *testing.T, change ...func(*Snapshot)) *Cluster {
	t.Helper()
	c, err := New(*world(change...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func reasonsOf(problems []Problem) string {
	var reasons []string
	for _, p := range problems {
		reasons = append(reasons, p.Reason)
	}
	return strings.Join(reasons, ",")
}

func TestEgressIP(t *testing.T) {
	type change = func(*Snapshot)
	prod := egressIP("prod", "prod", "172.18.0.33")
	for _, tc := range []struct {
		name     string
		world    []change
		want     string // address@node, whether it is programmed, and the other nodes
		problems string
	}{
		{"in place", []change{prod, inForce},
			"172.18.0.33@ovn-worker2 true: ovn-control-plane is not labelled k8s.ovn.org/egress-assignable, ovn-worker could hold it, and has 0 other addresses", ""},
		{"two addresses", []change{egressIP("prod", "prod", "172.18.0.33", "172.18.0.44"), inForce},
			"172.18.0.33@ovn-worker2 true: ovn-control-plane is not labelled k8s.ovn.org/egress-assignable, ovn-worker serves another of the same group; " +
				"172.18.0.44@ovn-worker true: ovn-control-plane is not labelled k8s.ovn.org/egress-assignable, ovn-worker2 serves another of the same group", ""},
		{"the other is not Ready", []change{prod, notReady("ovn-worker"), inForce},
			"172.18.0.33@ovn-worker2 true: ovn-control-plane is not labelled k8s.ovn.org/egress-assignable, ovn-worker not ready", ""},
		{"the other is cordoned, in IPv6", []change{egressIP("prod", "prod", "fc00:f853:ccd:e793::33"), func(s *Snapshot) { s.Nodes[2].Spec.Unschedulable = true }, inForce},
			"fc00:f853:ccd:e793::33@ovn-worker true: ovn-control-plane is not labelled k8s.ovn.org/egress-assignable, ovn-worker2 is cordoned", ""},
		{"no node", []change{prod, unlabelled, inForce},
			"172.18.0.33@ false: ovn-control-plane is not labelled k8s.ovn.org/egress-assignable, ovn-worker is not labelled k8s.ovn.org/egress-assignable, " +
				"ovn-worker2 is not labelled k8s.ovn.org/egress-assignable", "NoNode,NotAssigned"},
		{"the address of a node", []change{egressIP("prod", "prod", "172.18.0.3"), inForce}, "172.18.0.3@ false: ", "NodeAddress,NotAssigned"},
		{"not acknowledged", []change{prod, inForce, func(s *Snapshot) { s.EgressIPs[0].Status.Programmed = nil }},
			"172.18.0.33@ovn-worker2 false: ovn-control-plane is not labelled k8s.ovn.org/egress-assignable, ovn-worker could hold it, and has 0 other addresses",
			"Waiting,Waiting"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := cluster(t, tc.world...).EgressIP("prod")
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, a := range e.Addresses {
				var others []string
				for _, o := range a.Others {
					others = append(others, o.Node+" "+o.Why)
				}
				parts = append(parts, fmt.Sprintf("%s@%s %v: %s", a.Address, a.Node, a.Programmed, strings.Join(others, ", ")))
			}
			if got := strings.Join(parts, "; "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if got := reasonsOf(e.Problems); got != tc.problems || e.InPlace != (tc.problems == "") {
				t.Errorf("problems %q, in place %v; want %q", got, e.InPlace, tc.problems)
			}
			if len(e.Pods) != 1 || e.Pods[0].Pod != "prod/web" {
				t.Errorf("pods %+v, want prod/web", e.Pods)
			}
		})
	}
}

func TestEgressIPNotFound(t *testing.T) {
	if _, err := cluster(t).EgressIP("prod"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want that it is not found", err)
	}
	disabled := func(s *Snapshot) { s.Settings.EgressIP = false }
	if _, err := cluster(t, egressIP("prod", "prod", "172.18.0.33"), disabled).EgressIP("prod"); !errors.Is(err, ErrDisabled) {
		t.Errorf("got %v, want that the feature is not enabled", err)
	}
}

func TestEgressIPSamples(t *testing.T) {
	e, err := cluster(t, egressIP("prod", "prod", "172.18.0.33", "172.19.0.44"), func(s *Snapshot) {
		s.Pods = append(s.Pods, pod("prod/db", "ovn-worker2", 5))
	}, inForce, func(s *Snapshot) {
		status := &s.EgressIPs[0].Status
		status.Programmed = status.Programmed[1:]
		status.Conditions[1].Status, status.Conditions[1].Reason = "False", "WaitingForNode"
		status.Conditions[1].Message, status.Conditions[1].LastTransitionTime = "node has not acknowledged", ago(40*time.Second)
	}).EgressIP("prod")
	if err != nil {
		t.Fatal(err)
	}
	samples(t, "egressip", e)
}
