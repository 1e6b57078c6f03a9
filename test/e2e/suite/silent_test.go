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

// silentHost stops ovnkube on a host that still answers probes, and starts a pod: another node
// takes over what the host cannot program, and pods leave with the Service's address all the time.
// When ovnkube runs again, nothing is left on the former host.
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
	if err := s.Service(t.Context(), "stop", host, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	s.leavesAs(t, before, silentIngress...)
	later := run("silent-1")
	next := e.programmed(t, host)
	s.told(t, e.name, "HostChanged", fmt.Sprintf("Node %s serves the egress traffic instead of %s: has not acknowledged in time", next, host))
	s.allLeaveAs(t, []lab.Pod{before, later}, silentIngress...)
	name := lab.Namespace + "/" + e.name
	rules, err := s.translations(t.Context(), host)
	if err != nil || !strings.Contains(rules, name) {
		t.Fatalf("%s, whose ovnkube is stopped, has no rules of %s (%v):\n%s", host, name, err, rules)
	}
	if err := s.Service(t.Context(), "start", host, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	err = lab.Until(t.Context(), leakPatience, host+" to remove the rules", func(ctx context.Context) error {
		rules, err := s.translations(ctx, host)
		if err == nil && strings.Contains(rules, name) {
			err = errors.New(rules)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if now := e.programmed(t, ""); now != next {
		t.Errorf("%s took it back from %s", now, next)
	}
}

// translations returns the rules with which a node translates for EgressServices, in both families.
// The Service itself has rules for its addresses on every node, in other chains.
func (s *suite) translations(ctx context.Context, node string) (string, error) {
	var all strings.Builder
	for _, command := range []string{"iptables", "ip6tables"} {
		rules, err := s.Kin.Exec(ctx, node, command, "-t", "nat", "-S", "OVN-KUBE-EGRESS-SVC")
		if err != nil {
			return "", err
		}
		all.WriteString(rules)
	}
	return all.String(), nil
}
