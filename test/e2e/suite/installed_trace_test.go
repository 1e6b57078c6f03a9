package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// installedTrace traces packets of a pod, and compares the predicted path, and that of probe
// packets that are sent, with what is seen outside: when nothing selects the pod, with an EgressIP,
// with a row that was deleted while no master runs, and for a user without permissions.
func (s *suite) installedTrace(t *testing.T) {
	e := s.egressIPOf(t, s.servers["a"])
	pod, outside := s.servers["a"], e.OfFamilies(lab.OutsideAddresses)
	user := e.user(t)
	e.refusesTrace(t, user, "trace", "egress-tracer") // no role is bound yet
	e.bind(t, "egress-tracer")
	e.traceUntil(t, user, pod, outside[0], nil, func(status int, a traced, _ string) error {
		if status == 2 || a.Probe != nil { // the API server's authorizer watches bindings
			return errors.New("not traced, or probed")
		}
		return nil
	})
	e.refusesTrace(t, user, "probe", "egress-prober", "--probe")
	e.bind(t, "egress-prober")
	e.assignable(t, "ovn-worker2")
	for _, to := range outside {
		e.tracesTo(t, user, pod, to)
	}
	e.choose(t, traceName, pod.Name)
	e.create(t, traceName, e.OfFamilies(traceIPs))
	e.programmed(t, traceName)
	for _, to := range outside {
		want := lab.OfFamily(traceIPs, to.Is4())
		e.leaves(t, pod.Name, to, want)
		if source := e.tracesTo(t, user, pod, to); source != want {
			t.Errorf("the trace says %s", source)
		}
	}
	e.traceWithoutRow(t, user, pod, outside[0])
	e.remove(t, traceName)
	e.choose(t, traceName)
	e.assignable(t)
}

// traceWithoutRow deletes a policy while no master runs.
func (e *egressIPTest) traceWithoutRow(t *testing.T, user string, pod lab.Pod, to netip.Addr) {
	e.scaleMaster(t, 0)
	match := fmt.Sprintf("ip%d.src == %s", map[bool]int{true: 4, false: 6}[to.Is4()], pod.Address(to.Is4()))
	if _, err := e.Kin.Exec(t.Context(), lab.ControlPlane, "ovn-nbctl", "--wait=sb", "lr-policy-del", "ovn_cluster_router", "100", match); err != nil {
		t.Error(err)
	}
	own, err := e.nodeAddress(t.Context(), pod.Node, to.Is4())
	if err != nil {
		t.Fatal(err)
	}
	e.traceUntil(t, user, pod, to, []string{"--probe"}, func(status int, a traced, _ string) error {
		if status != 1 || len(a.Paths) != 1 || a.Probe == nil {
			return errors.New("want a trace that is not in place")
		}
		if !slices.ContainsFunc(a.Paths[0].Problems, func(p tracedProblem) bool {
			return p.Reason == "Missing" && p.Object == "EgressIP/"+traceName && strings.Contains(p.Message, match)
		}) {
			return errors.New("the row is not named")
		}
		if !slices.ContainsFunc(a.Probe.Problems, func(p tracedProblem) bool {
			return p.Reason == "ProbeDiffers" && p.Object == "EgressIP/"+traceName && strings.Contains(p.Message, "it left with "+own.String()+" from node "+pod.Node)
		}) {
			return errors.New("the probe does not show the address of the node")
		}
		return nil
	})
	e.scaleMaster(t, 1)
	e.leaves(t, pod.Name, to, lab.OfFamily(traceIPs, to.Is4())) // the master has written it again
	e.tracesTo(t, user, pod, to)
}

// scaleMaster scales the master and waits until it has that many pods.
func (e *egressIPTest) scaleMaster(t *testing.T, replicas int) {
	t.Helper()
	kubectl := append(e.Kubectl(), "--namespace=ovn-kubernetes")
	if _, err := lab.Run(t.Context(), append(kubectl, "scale", "deployment/ovnkube-master", fmt.Sprintf("--replicas=%d", replicas))...); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(t.Context(), egressPatience, fmt.Sprintf("%d pods of the master", replicas), func(ctx context.Context) error {
		out, err := lab.Run(ctx, append(kubectl, "get", "pods", "--selector=app=ovnkube-master", "--output=name")...)
		if lines := strings.Count(out, "\n"); err == nil && lines != replicas {
			err = errors.New(out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
