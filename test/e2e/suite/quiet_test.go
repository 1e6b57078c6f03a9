package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

var quietIngress = []netip.Addr{netip.MustParseAddr("5.5.5.26"), netip.MustParseAddr("5555::1a")}

// quiet restarts ovnkube on the host of an EgressService and on the control plane while nothing has
// changed: nothing may be written to the kernel, the databases or the API.
func (s *suite) quiet(t *testing.T) {
	e := s.serve(t, "quiet", quietIngress)
	if _, err := s.RunServer(t.Context(), "quiet", lab.ControlPlane, e.labels()); err != nil {
		t.Fatal(err)
	}
	host := e.programmed(t, "")
	e.steered(t, 1)
	s.steadyState(t)
	// From now on, everything that the kernel is told is recorded.
	const heard = "/run/heard"
	monitor, err := s.Kin.ExecAttached(host, "sh", "-c",
		`nft monitor >`+heard+` 2>&1 & n=$!; ip monitor rule route >>`+heard+` 2>&1 & i=$!; cat >/dev/null; kill $n $i`)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	listen := func(ctx context.Context) (string, error) { return s.Kin.Exec(ctx, host, "cat", heard) }
	for what, command := range map[string]string{
		"nft": "nft add table inet e2e; nft delete table inet e2e",
		"ip":  "ip rule add priority 4999 from 192.0.2.1 lookup main; ip rule del priority 4999",
	} {
		err := lab.Until(t.Context(), leakPatience, "the monitor of "+what, func(ctx context.Context) error {
			if _, err := s.Kin.Exec(ctx, host, "sh", "-ec", command); err != nil {
				return err
			}
			out, err := listen(ctx)
			if err == nil && !strings.Contains(out, map[string]string{"nft": "e2e", "ip": "192.0.2.1"}[what]) {
				err = fmt.Errorf("it heard %q", out)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	before, heardBefore := s.written(t, e), len(must(t, listen))
	s.restartAndSettle(t, nodeProcess(host), "ovnkube-node", "egressservice-node")
	s.restartAndSettle(t, processes[0], "ovnkube-master", "egressservice-labels")
	s.steadyState(t)
	if after := s.written(t, e); after != before {
		t.Errorf("restarts wrote: %s, then %s", before, after)
	}
	var ours []string
	for line := range strings.Lines(must(t, listen)[heardBefore:]) {
		// Neighbors and cached routes come and go by themselves.
		if !strings.Contains(line, "# new generation") && !strings.Contains(line, "cache") && strings.TrimSpace(line) != "" {
			ours = append(ours, line)
		}
	}
	if len(ours) > 0 {
		t.Errorf("the kernel of %s was told:\n%s", host, strings.Join(ours, ""))
	}
}

func must(t *testing.T, f func(context.Context) (string, error)) string {
	t.Helper()
	out, err := f(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// written returns, as text, the versions of the EgressService and of the northbound database: each
// write changes it.
func (s *suite) written(t *testing.T, e *served) string {
	t.Helper()
	eg, err := s.Egress.EgressServiceV1().EgressServices(lab.Namespace).Get(t.Context(), e.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	size := must(t, func(ctx context.Context) (string, error) {
		return s.Kin.Exec(ctx, lab.ControlPlane, "stat", "-c", "%s", "/var/lib/ovn/ovnnb_db.db")
	})
	return fmt.Sprintf("resource version %s, database of %s bytes", eg.ResourceVersion, strings.TrimSpace(size))
}

// restartAndSettle kills a process and waits until a controller of its successor has processed
// every key.
func (s *suite) restartAndSettle(t *testing.T, p process, daemon, controller string) {
	t.Helper()
	settled := func(ctx context.Context) (int, error) {
		log, err := s.Logs(ctx, p.node, daemon)
		return strings.Count(log, fmt.Sprintf("\"All start-up keys tried\" controller=%q", controller)), err
	}
	was, err := settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.kill(t, p)
	err = lab.Until(t.Context(), leakPatience, daemon+" to settle", func(ctx context.Context) error {
		is, err := settled(ctx)
		if err == nil && is == was {
			err = fmt.Errorf("controller %s did not", controller)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
