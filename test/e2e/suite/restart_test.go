package suite

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	esv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// process is a process that faults are injected into.
type process struct {
	name, node string
	pattern    string // of its command line
	// ready is the port of its /readyz; 0 if it has none.
	ready int
	// works is a command on its node that succeeds if the process does its work; nil if it has
	// /readyz.
	works []string
	// cut is an nft match for its TCP traffic on its node; empty if it uses only Unix sockets.
	cut string
}

// followed succeeds when all nodes have applied what is in the northbound database: both databases,
// northd, and every node's ovn-controller and switch work together.
var followed = []string{"ovn-nbctl", "--timeout=10", "--wait=hv", "sync"}

// processes are the processes of the cluster; the first is the master.
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

// flows waits until a stream currently carries traffic.
func (s *suite) flows(ctx context.Context, stream string) error {
	first := -1
	return lab.Until(ctx, 20*time.Second, stream+" to carry traffic", func(ctx context.Context) error {
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
}

// suspend stops a process until proceed is called, or the test ends.
func (s *suite) suspend(t *testing.T, p process) (proceed func()) {
	t.Helper()
	pid, err := s.pid(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	signal := func(name string) {
		t.Helper()
		if _, err := s.Kin.Exec(context.WithoutCancel(t.Context()), p.node, "kill", name, pid); err != nil {
			t.Error(err)
		}
	}
	signal("-STOP")
	proceed = sync.OnceFunc(func() { signal("-CONT") })
	t.Cleanup(proceed)
	return proceed
}

// kill kills a process and waits until its supervisor has started another that does its work.
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

// decides checks that the master makes a decision soon: a ready master may not have the lease, and
// a state that does not change could also mean that no master works.
func (s *suite) decides(t *testing.T) {
	t.Helper()
	e := s.egressIPOf(t)
	const name = "undecided"
	took := during(func() {
		e.create(t, name, addresses("203.0.113.99")) // on no node's network
		e.awaits(t, name, "refused", func(ip *v1.EgressIP) error { return has(ip, v1.ConditionAssigned, metav1.ConditionFalse) })
	})
	figures.Record(t, "a decision of the master after a restart", figures.InForce, took)
	e.remove(t, name)
}

// readyz returns an error unless a process reports that it is ready.
func (s *suite) readyz(ctx context.Context, p process) error {
	address, err := s.nodeAddress(ctx, p.node, true)
	if err != nil {
		return err
	}
	scheme := "http"
	if s.installed {
		scheme = "https"
	}
	return s.Get(ctx, p.node, fmt.Sprintf("%s://%s:%d/readyz", scheme, address, p.ready))
}

// pid finds the one process whose command line matches. A child that is about to exec another
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

// settles is how long a state must be unchanged to count as settled: two reads this far apart must
// be equal.
const settles = time.Second

// forgotten waits until nothing on the nodes or in the northbound database has addresses that
// belonged to EgressIPs, for which nodes keep flows for a while.
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

// steadyState reads the state until it no longer changes, once nothing is left of what nodes do
// only for a while: a state that included that would never be seen again.
func (s *suite) steadyState(t *testing.T) lab.State {
	t.Helper()
	s.egress(t).ended(t)
	var last lab.State
	var since time.Time // time since which the state is equal to last
	err := lab.Until(t.Context(), time.Minute, "the cluster's state to stand still", func(ctx context.Context) error {
		if last != nil { // each read keeps the machine busy
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

// hosted returns an error while a node translates for an EgressService of which it is not, or no
// longer, the host, or has any rule of one that does not exist: a former host does so for a few seconds, longer
// than a state takes to settle.
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
				rule := serviceRule.FindStringSubmatch(line)
				if rule == nil {
					continue
				}
				host, exists := hosts[rule[1]]
				if !exists || rule[2] != "" && host != node && host != esv1.HostAll {
					return fmt.Errorf("%s has the host %q, and %s has %s", rule[1], host, node, line)
				}
			}
		}
	}
	return nil
}

// serviceRule matches a rule of an EgressService, whose key is the first submatch. The second one is not empty if
// the rule translates pods' packets to its address.
var serviceRule = regexp.MustCompile(`^-A OVN-KUBE-EGRESS-SVC\S* .*--comment "?([^" ]+/[^" ]+)"?(?: -j (SNAT))?`)

// sameState waits until the state is as before, and stays so.
func (s *suite) sameState(t *testing.T, before lab.State) {
	t.Helper()
	s.same(t, before, func(now lab.State) lab.State { return now })
}

// same is sameState for a function of the state.
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
