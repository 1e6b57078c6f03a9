package suite

import (
	"fmt"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

var healthIngress = addresses("5.5.5.15", "5555::f")

// healthService has the master probe the nodes' health service instead of port 9: dead nodes are
// noticed as well and as fast, and so is a node that has lost its ovn-controller, which port 9 does
// not show.
func (s *suite) healthService(t *testing.T) {
	t.Run("FailoverLatency", s.latency)
	t.Run("OVNController", s.withoutOVN)
}

// withoutOVN stops the host's ovn-controller: what it programmed stays, but it would not apply any
// change.
func (s *suite) withoutOVN(t *testing.T) {
	e := s.serve(t, "health", healthIngress)
	e.announce(t)
	pod, err := s.RunServer(t.Context(), "health", lab.ControlPlane, e.labels())
	if err != nil {
		t.Fatal(err)
	}
	host := e.programmed(t, "")
	s.leavesAs(t, pod, healthIngress...)
	if err := s.Service(t.Context(), "stop", host, "ovn-controller"); err != nil {
		t.Fatal(err)
	}
	next := e.programmed(t, host)
	s.told(t, e.name, "HostChanged", fmt.Sprintf("Node %s serves the egress traffic instead of %s: unreachable", next, host))
	s.leavesAs(t, pod, healthIngress...)
	if err := s.Service(t.Context(), "start", host, "ovn-controller"); err != nil {
		t.Fatal(err)
	}
	s.candidate(t, host)
	// It may become host again, but takes nothing back.
	if now := e.programmed(t, ""); now != next {
		t.Errorf("%s took it back from %s", now, next)
	}
}
