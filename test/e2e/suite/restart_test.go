package suite

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	esv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// process is one that faults happen to.
type process struct {
	name, node string
	pattern    string // of its command line
	// ready is the port of its /readyz; 0 where it has none.
	ready int
	// works is a command on its node that succeeds when it does its work; nil where
	// /readyz says so.
	works []string
	// cut matches, in the language of nft, what it talks to by TCP on its node; empty
	// where that is Unix sockets alone.
	cut string
}

const (
	// unnoticed is the gap where no packet depends on the process; the machine
	// may be busy.
	unnoticed = 2 * time.Second
	// noticed is the gap where packets stop until the process is back.
	noticed = 20 * time.Second
	// inForce is how long a change may take that needs a process which was just
	// started again: 3 seconds, more than three times as much for a machine that is busy.
	inForce = 10 * time.Second
)

// followed succeeds when all nodes have what the northbound database says: both
// databases, northd, and every node's ovn-controller and switch work together.
var followed = []string{"ovn-nbctl", "--timeout=10", "--wait=hv", "sync"}

// processes are those of the cluster; the first is the master.
var processes = []process{
	{name: "ovnkube master", node: lab.ControlPlane, pattern: "ovnkube .*--init-master", ready: 9409, cut: "{ 6443, 6641, 6642 }"},
	{name: "ovnkube node", node: "ovn-worker", pattern: "ovnkube .*--init-node", ready: 9410, cut: "{ 6443, 6641 }"},
	{name: "ovnkube node of control plane", node: lab.ControlPlane, pattern: "ovnkube .*--init-node", ready: 9410},
	{name: "northbound database", node: lab.ControlPlane, pattern: "ovsdb-server .*ovnnb_db.db", works: followed, cut: "6641"},
	{name: "southbound database", node: lab.ControlPlane, pattern: "ovsdb-server .*ovnsb_db.db", works: followed, cut: "6642"},
	{name: "northd", node: lab.ControlPlane, pattern: "^ovn-northd ", works: followed},
	{name: "API server", node: lab.ControlPlane, pattern: "kube-apiserver .*--secure-port", cut: "{ 2379, 6443 }",
		works: []string{"kubectl", "get", "--raw", "/readyz"}},
	{name: "ovn-controller", node: "ovn-worker", pattern: "^ovn-controller ", works: followed, cut: "6642"},
	{name: "switch database", node: "ovn-worker", pattern: "ovsdb-server .*conf.db", works: followed},
	{name: "switch", node: "ovn-worker", pattern: "^ovs-vswitchd ", works: followed},
}

// flows waits until a stream carries traffic now.
func (s *suite) flows(t *testing.T, stream string) {
	t.Helper()
	first := -1
	err := lab.Until(t.Context(), noticed, stream+" to carry traffic", func(ctx context.Context) error {
		r, err := s.Report(ctx, stream, false)
		if err != nil {
			return err
		}
		if first < 0 || r.Echoed < first {
			first = r.Echoed
		}
		if r.Echoed <= first {
			return fmt.Errorf("no echo since the first look: %+v", r)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// kill ends a process at once and waits until its supervisor started another that
// does its work.
func (s *suite) kill(t *testing.T, p process) {
	t.Helper()
	was, err := s.pid(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kin.Exec(t.Context(), p.node, "kill", "-KILL", was); err != nil {
		t.Fatal(err)
	}
	err = lab.Until(t.Context(), 30*time.Second, p.name+" to be started again", func(ctx context.Context) error {
		is, err := s.pid(ctx, p)
		if err == nil && is == was {
			return fmt.Errorf("process %s is still there", was)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.atWork(t, p)
}

// atWork waits until a process does its work.
func (s *suite) atWork(t *testing.T, p process) {
	t.Helper()
	err := lab.Until(t.Context(), 30*time.Second, p.name+" to be ready", func(ctx context.Context) error {
		if p.ready != 0 {
			return s.readyz(ctx, p)
		}
		_, err := s.Kin.Exec(ctx, p.node, p.works...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.pattern == processes[0].pattern {
		s.decides(t)
	}
}

// decides wants a decision of the master, soon: being ready does not mean that it has
// the lease, and nothing changes as well where no master works.
func (s *suite) decides(t *testing.T) {
	t.Helper()
	e := s.egressIPOf(t)
	const name = "undecided"
	took := during(func() {
		e.create(t, name, addresses("203.0.113.99")) // on no node's network
		e.awaits(t, name, "refused", func(ip *v1.EgressIP) error { return has(ip, v1.ConditionAssigned, metav1.ConditionFalse) })
	})
	if took > inForce {
		t.Errorf("the master took %s to decide, allowed is %s", took, inForce)
	}
	e.remove(t, name)
}

// readyz asks a process whether it is ready.
func (s *suite) readyz(ctx context.Context, p process) error {
	address, err := s.nodeAddress(ctx, p.node, true)
	if err != nil {
		return err
	}
	return s.Get(ctx, p.node, fmt.Sprintf("http://%s:%d/readyz", address, p.ready))
}

// pid finds the one process whose command line matches. One that is about to run another
// program has its parent's command line for a moment.
func (s *suite) pid(ctx context.Context, p process) (pid string, err error) {
	err = lab.Until(ctx, 5*time.Second, "one process", func(ctx context.Context) error {
		out, err := s.Kin.Exec(ctx, p.node, "pgrep", "-f", p.pattern)
		if err != nil {
			return err
		}
		pids := strings.Fields(out)
		if len(pids) != 1 {
			return fmt.Errorf("%s: want one process, have %v", p.name, pids)
		}
		pid = pids[0]
		return nil
	})
	return pid, err
}

// settles is how long a state has to be the same to pass for settled: two reads, so
// far apart, find it equal.
const settles = time.Second

// forgotten waits until nothing on the nodes or in the northbound database has
// addresses that belonged to EgressIPs, which nodes gate for a while.
func (s *suite) forgotten(t *testing.T, addrs []netip.Addr) {
	t.Helper()
	// The test's own context may have ended.
	err := lab.Until(context.WithoutCancel(t.Context()), time.Minute, "old egress addresses to be forgotten", func(ctx context.Context) error {
		state, err := s.State(ctx, nodes...)
		if err != nil {
			return err
		}
		for place, text := range state {
			for _, a := range addrs {
				if strings.Contains(text, a.String()) {
					return fmt.Errorf("%s has %s", place, a)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// steadyState reads the state until it stands still, once nothing is left that nodes do
// for a while only: a state that has such a thing is never seen again.
func (s *suite) steadyState(t *testing.T) lab.State {
	t.Helper()
	s.egress(t).ended(t)
	var last lab.State
	var since time.Time // that the state is as last
	err := lab.Until(t.Context(), time.Minute, "the cluster's state to stand still", func(ctx context.Context) error {
		if last != nil { // a read keeps the machine busy
			if err := pause(ctx, time.Until(since.Add(settles))); err != nil {
				return err
			}
		}
		now, err := s.State(ctx, nodes...)
		if err != nil {
			return err
		}
		if diff := last.Diff(now); diff != "" {
			last, since = now, time.Now()
			return fmt.Errorf("it just changed:\n%s", diff)
		}
		return s.hosted(ctx, now)
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// hosted fails while a node translates for an EgressService whose host it is not (any
// more): a former host does so for a few seconds, for longer than a state takes to settle.
func (s *suite) hosted(ctx context.Context, state lab.State) error {
	list, err := s.Egress.EgressServiceV1().EgressServices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	hosts := map[string]string{}
	for _, eg := range list.Items {
		hosts[eg.Namespace+"/"+eg.Name] = eg.Status.Host
	}
	for _, node := range nodes {
		for _, place := range []string{": iptables", ": ip6tables"} {
			for line := range strings.Lines(state[node+place]) {
				rule := translation.FindStringSubmatch(line)
				if rule != nil && hosts[rule[1]] != node && hosts[rule[1]] != esv1.HostAll {
					return fmt.Errorf("%s is not the host of %s and has %s", node, rule[1], line)
				}
			}
		}
	}
	return nil
}

// translation is a rule that has what a pod sends leave with the address of an
// EgressService, whose key is the first submatch.
var translation = regexp.MustCompile(`^-A OVN-KUBE-EGRESS-SVC .*--comment "?([^" ]+/[^" ]+)"? -j SNAT`)

// sameState waits until the state is as before, and stays so.
func (s *suite) sameState(t *testing.T, before lab.State) {
	t.Helper()
	s.same(t, before, func(now lab.State) lab.State { return now })
}

// same is sameState of what a function makes of the state.
func (s *suite) same(t *testing.T, before lab.State, of func(lab.State) lab.State) {
	t.Helper()
	equal := func(ctx context.Context) error {
		now, err := s.State(ctx, nodes...)
		if err != nil {
			return err
		}
		if diff := before.Diff(of(now)); diff != "" {
			return fmt.Errorf("it differs:\n%s", diff)
		}
		return nil
	}
	err := lab.Until(t.Context(), time.Minute, "the state to be as before", func(ctx context.Context) error {
		if err := equal(ctx); err != nil {
			return err
		}
		if err := pause(ctx, settles); err != nil {
			return err
		}
		return equal(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// pause waits for a while, or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
