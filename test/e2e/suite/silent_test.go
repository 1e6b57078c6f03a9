package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

var silentIngress = addresses("5.5.5.16", "5555::10")

// silentHost stops ovnkube on a host that goes on answering probes, and starts a pod: what
// the host cannot program another node does, and pods leave with the Service's address all
// the time. When ovnkube runs again nothing is left of what the former host had.
func (s *suite) silentHost(t *testing.T) {
	e := s.serve(t, "silent", silentIngress)
	e.announce(t)
	run := func(name string) lab.Pod {
		pod, err := s.RunServer(t.Context(), name, lab.ControlPlane, e.labels())
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	before := run("silent-0")
	host := e.programmed(t, "")
	s.leavesAs(t, before, silentIngress...)
	if err := s.Kin.Service(t.Context(), "stop", host, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	s.leavesAs(t, before, silentIngress...)
	later := run("silent-1")
	next := e.programmed(t, host)
	s.told(t, e.name, "HostChanged", fmt.Sprintf("Node %s serves the egress traffic instead of %s: has not acknowledged in time", next, host))
	for _, pod := range []lab.Pod{before, later} {
		s.leavesAs(t, pod, silentIngress...)
	}
	if err := s.Kin.Service(t.Context(), "start", host, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(t.Context(), leakPatience, host+" to remove the rules", func(ctx context.Context) error {
		for _, command := range []string{"iptables-save", "ip6tables-save"} {
			rules, err := s.Kin.Exec(ctx, host, command, "-t", "nat")
			if err != nil {
				return err
			}
			if strings.Contains(rules, silentIngress[0].String()) || strings.Contains(rules, silentIngress[1].String()) {
				return errors.New(rules)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if now := e.programmed(t, ""); now != next {
		t.Errorf("%s took it back from %s", now, next)
	}
}
