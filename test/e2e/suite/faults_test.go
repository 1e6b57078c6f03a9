package suite

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	esv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// faultStopped is how long a process is stopped, faultCut how long it is cut off.
	faultStopped = 30 * time.Second
	faultCut     = 15 * time.Second
	// faultHome is the node that has all egress addresses, and whose processes fail.
	faultHome = "ovn-worker"
)

// gaps are how long new connections may stall: those of pods on other nodes, those of pods on the
// node of the process, and those through external gateways, whose BFD sessions ovn-controller
// handles. Connections that are open may stall for longer; see figures.Bound.Open.
type gaps struct{ other, own, gateway figures.Bound }

// of returns the bound for a kind of pods.
func (g gaps) of(kind string) figures.Bound {
	return map[string]figures.Bound{"other": g.other, "own": g.own, "gateway": g.gateway}[kind]
}

// undisturbed reports whether no connection may notice anything.
func (g gaps) undisturbed() bool {
	for _, b := range []figures.Bound{g.other, g.own, g.gateway} {
		if !unnoticed(b) {
			return false
		}
	}
	return true
}

// unnoticed reports whether a bound is for what packets do not depend on: it allows only for the load
// of the machine, so no connection may break.
func unnoticed(b figures.Bound) bool { return b.Promised == figures.Undisturbed.Promised }

// The gaps that are allowed. Packets do not depend on the processes above the line. Below it the
// gaps are those of the node's switch: it forwards nothing until it has its flows again, its
// connections may break, and if it is down for seconds, the egress addresses move to another node.
var (
	none     = gaps{figures.Fault, figures.Fault, figures.Fault}
	refilled = gaps{figures.SwitchFault, figures.SwitchFault, figures.SwitchFault}
	moved    = gaps{figures.SwitchFault, stoppedSwitch, stoppedSwitch}
	// BFD sessions end with the ovn-controller that runs them, and start anew.
	sessions = gaps{figures.Fault, figures.Fault, figures.SwitchFault}
	// The switch forwards nothing while it is stopped.
	stoppedSwitch = figures.Bound{Promised: figures.SwitchFault.Promised, Factor: figures.SwitchFault.Factor, Stall: faultStopped}
)

// faultRow has the gaps allowed in the faults of one process; nil if there is no such fault.
type faultRow struct {
	process                 string
	killed, stopped, cutOff *gaps
	// needs is the change that is made after each fault, in which the process takes part.
	needs func(*faultTest, *testing.T)
	// extra faults are made only with FAULTS=all.
	extra bool
}

var faultRows = []faultRow{
	{"ovnkube master", &none, &none, &none, (*faultTest).newAddress, true},
	{"ovnkube node", &none, &none, &none, (*faultTest).newHost, true},
	{"ovnkube node of control plane", &none, &none, nil, (*faultTest).newHost, true},
	{"northbound database", &none, &none, &none, (*faultTest).newAddress, false},
	{"southbound database", &none, &none, &none, (*faultTest).newPod, true},
	{"northd", &none, &none, nil, (*faultTest).newAddress, true},
	{"API server", &none, &none, &none, (*faultTest).newPod, false},
	// The line.
	{"ovn-controller", &sessions, &sessions, &none, (*faultTest).newPod, false},
	{"switch database", &refilled, &refilled, nil, (*faultTest).newPod, true},
	{"switch", &refilled, &moved, nil, (*faultTest).newPod, false},
}

// faultKinds are the kinds of faults.
var faultKinds = []struct {
	name    string
	allowed func(faultRow) *gaps
	do      func(*faultTest, *testing.T, process)
}{
	{"killed", func(r faultRow) *gaps { return r.killed }, func(f *faultTest, t *testing.T, p process) { f.kill(t, p) }},
	{"stopped", func(r faultRow) *gaps { return r.stopped }, (*faultTest).stop},
	{"cut off", func(r faultRow) *gaps { return r.cutOff }, (*faultTest).cutOff},
}

// faults kills four processes of the cluster, while an EgressService, EgressIPs on two networks and
// external gateways carry traffic. With FAULTS=all it kills every process, and also stops them and
// cuts them off. No packet may leave with a wrong source, no connection may stall longer than
// allowed, a change must take effect soon after, and at the end the databases and the hosts must be
// exactly as before.
func (s *suite) faults(t *testing.T) {
	f := s.newFaultTest(t)
	before := f.settledState(t)
	if !s.installed { // pods are gone with their commands when they are stopped
		t.Run("taken over", func(t *testing.T) { f.takenOver(t, before) })
	}
	everything := os.Getenv("FAULTS") == "all"
	for i, kind := range faultKinds {
		if i > 0 && !everything {
			break
		}
		for _, row := range faultRows {
			if kind.allowed(row) == nil || row.extra && !everything {
				continue
			}
			t.Run(row.process+" "+kind.name, func(t *testing.T) {
				p := processOf(t, row.process)
				f.suffers(t, row.process+" "+kind.name, *kind.allowed(row), func() { kind.do(f, t, p) })
				t.Run("Change", func(t *testing.T) { row.needs(f, t) })
				f.inspect(t)
			})
			// Addresses that moved and came back have new rows.
			if row.process == "API server" && !f.moved {
				f.sameState(t, before)
			}
		}
		f.same(t, before.Anonymous(), lab.State.Anonymous)
		before = f.settledState(t)
	}
	t.Logf("longest time without an echo, of connections that were open and of new ones, in milliseconds:\n%s", f.table.String())
}

func processOf(t *testing.T, name string) process {
	t.Helper()
	for _, p := range processes {
		if p.name == name {
			return p
		}
	}
	t.Fatalf("no process %s", name)
	return process{}
}

// stop stops a process for a while, as if the machine had no time for it.
func (f *faultTest) stop(t *testing.T, p process) {
	pid, err := f.pid(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	f.forAWhile(t, p.node, faultStopped, []string{"kill", "-STOP", pid}, []string{"kill", "-CONT", pid})
	f.atWork(t, p)
}

// cutOff drops the TCP traffic between a process and its peers.
func (f *faultTest) cutOff(t *testing.T, p process) {
	f.forAWhile(t, p.node, faultCut, []string{"nft", cutOffRules(p).in("e2e")}, []string{"nft", "delete table inet e2e"})
	f.atWork(t, p)
}

// cutOffRules returns the nft rules that cut a process off, with a counter of drops.
func cutOffRules(p process) dropRules {
	return dropRules{"inet", fmt.Sprintf(`add chain inet TABLE in { type filter hook input priority -300; }
add rule inet TABLE in tcp dport %[1]s counter drop
add rule inet TABLE in tcp sport %[1]s counter drop
add chain inet TABLE out { type filter hook output priority -300; }
add rule inet TABLE out tcp dport %[1]s counter drop
add rule inet TABLE out tcp sport %[1]s counter drop`, p.cut)}
}

// forAWhile does something on a node and undoes it after a while, whatever happens.
func (f *faultTest) forAWhile(t *testing.T, node string, while time.Duration, do, undo []string) {
	t.Helper()
	_, err := f.Kin.Exec(t.Context(), node, do...)
	if err == nil {
		err = pause(t.Context(), while)
	}
	_, undone := f.Kin.Exec(context.WithoutCancel(t.Context()), node, undo...)
	if err := errors.Join(err, undone); err != nil {
		t.Fatal(err)
	}
}

// suffers measures and records how a fault affects connections. It returns once all of them carry
// traffic again and every egress address is back home.
func (f *faultTest) suffers(t *testing.T, what string, allowed gaps, fault func()) {
	t.Helper()
	f.flow(t)
	if _, err := f.reports(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	took := during(fault)
	f.flow(t)
	all, err := f.reports(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	away := f.away(t)
	f.moved = f.moved || away != ""
	if away != "" && allowed.undisturbed() {
		// On a busy machine a node may be considered dead.
		if f.deaths(t) == f.deathsAtHome {
			t.Errorf("no node passed for dead, and addresses moved: %s", away)
		}
		allowed = refilled
		t.Logf("addresses moved: %s", away)
	}
	fresh, lasting := map[figures.Bound][]time.Duration{}, map[figures.Bound][]time.Duration{}
	fmt.Fprintf(&f.table, "%-44s %4.0f s", t.Name()[strings.LastIndex(t.Name(), "/")+1:], took.Seconds())
	for _, group := range f.groups {
		bound := allowed.of(group.kind)
		forNew, forOpen := f.within(t, group, all[group.pod.Name], bound)
		fresh[bound], lasting[bound] = append(fresh[bound], forNew), append(lasting[bound], forOpen)
	}
	fmt.Fprintln(&f.table)
	for bound := range fresh {
		figures.Record(t, "new connections: "+what, bound, fresh[bound]...)
		figures.Record(t, "open connections: "+what, bound.Open(), lasting[bound]...)
	}
	f.goHome(t)
}

// within returns the longest gaps of a pod's connections, and reports those that exceed the bound.
func (f *faultTest) within(t *testing.T, group faultGroup, said map[netip.AddrPort]lab.TrafficReport, bound figures.Bound) (fresh, lasting time.Duration) {
	t.Helper()
	lost := 0
	for to, r := range said {
		lasting, fresh, lost = max(lasting, r.Lasting.MaxGap()), max(fresh, r.Fresh.MaxGap()), lost+r.Fresh.Reconnects
		if gap, limit := r.Fresh.MaxGap(), bound.Limit(); gap > limit {
			t.Errorf("new connections of %s to %s stood still for %s, allowed is %s", group.pod.Name, to, gap, limit)
		}
		if gap, limit := r.Lasting.MaxGap(), bound.Open().Limit(); gap > limit {
			t.Errorf("the open connection of %s to %s stood still for %s, allowed is %s", group.pod.Name, to, gap, limit)
		}
		if r.Lasting.Reconnects > 0 && unnoticed(bound) {
			t.Errorf("the connection of %s to %s broke %d times", group.pod.Name, to, r.Lasting.Reconnects)
		}
	}
	fmt.Fprintf(&f.table, "  %s %d/%d lost %d", group.pod.Name, lasting.Milliseconds(), fresh.Milliseconds(), lost)
	return fresh, lasting
}

// deaths returns how often a node has been considered dead, according to the logs of masters that
// still exist.
func (f *faultTest) deaths(t *testing.T) int {
	t.Helper()
	for _, line := range f.deathsLogged(t) {
		f.died[line] = true
	}
	return len(f.died)
}

// deathsLogged returns the lines of the masters' logs that say that a node is considered dead. On a
// busy machine one that is alive may be.
func (s *suite) deathsLogged(t *testing.T) []string {
	t.Helper()
	log, err := s.masterLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"Reachability of a node changed"`) && strings.Contains(line, `to="dead"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// inTime makes a change, waits for it to take effect and records how long that took.
func (f *faultTest) inTime(t *testing.T, change func()) {
	t.Helper()
	took := during(change)
	f.table.WriteString(fmt.Sprintf("%-44s %4.1f s until the change was in force\n", "", took.Seconds()))
	figures.Record(t, "a change after a fault", figures.InForce, took)
}

// newPod starts a pod of the EgressIP on the affected node: it must leave with the egress address
// from its first packet.
func (f *faultTest) newPod(t *testing.T) {
	const name = "late"
	f.inTime(t, func() {
		pod, err := f.RunTraffic(t.Context(), lab.Traffic{Name: name, Node: faultHome, Labels: chosen(faultName), To: f.primaryServers})
		if err != nil {
			t.Fatal(err)
		}
		f.echoes(t, pod)
	})
	if err := f.DeletePod(t.Context(), name); err != nil {
		t.Error(err)
	}
}

// newAddress gives a pod another egress address.
func (f *faultTest) newAddress(t *testing.T) {
	f.inTime(t, func() {
		f.egress.create(t, lateName, lateIPs, held)
		f.egress.awaits(t, lateName, "programmed", func(ip *v1.EgressIP) error {
			return has(ip, v1.ConditionProgrammed, metav1.ConditionTrue)
		})
		f.leavesAs(t, f.spare, lateIPs...)
	})
	f.egress.remove(t, lateName)
	f.leavesAs(t, f.spare)
}

// newHost makes the affected node the host of another EgressService.
func (f *faultTest) newHost(t *testing.T) {
	pod, err := f.RunServer(t.Context(), lateName, lab.ControlPlane, map[string]string{"app": lateName}) // deleted with the Service
	if err != nil {
		t.Fatal(err)
	}
	f.inTime(t, func() {
		e := f.serve(t, lateName, lateIngress, func(eg *esv1.EgressService) {
			eg.Spec.NodeSelector.MatchLabels = map[string]string{corev1.LabelHostname: faultHome}
		})
		if err := f.RouteTo(t.Context(), lateIngress, e.programmed(t, "")); err != nil {
			t.Fatal(err)
		}
		f.leavesAs(t, pod, lateIngress...)
	})
}

// echoes waits until new connections of a pod to all servers have been answered.
func (f *faultTest) echoes(t *testing.T, pod lab.Pod) {
	t.Helper()
	err := lab.Until(t.Context(), egressPatience, "echoes to "+pod.Name, func(ctx context.Context) error {
		said, err := f.TrafficOf(ctx, pod, false)
		if err != nil {
			return err
		}
		for to, r := range said {
			if r.Fresh.Echoed == 0 || r.Lasting.Echoed == 0 {
				return fmt.Errorf("none from %s: %+v", to, r)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// flow waits until all connections, open and new, currently carry traffic.
func (f *faultTest) flow(t *testing.T) {
	t.Helper()
	f.flowWithin(t, faultStopped, faultStopped)
}

// flowWithin is flow with a limit. What takes longer than expected is logged while it lasts.
func (f *faultTest) flowWithin(t *testing.T, expected, limit time.Duration) {
	t.Helper()
	begun, told := time.Now(), false
	first, err := f.reports(t.Context(), false)
	if err != nil {
		first = nil
	}
	var stuck netip.AddrPort
	err = lab.Until(t.Context(), limit, "all connections to carry traffic", func(ctx context.Context) error {
		now, err := f.reports(ctx, false)
		if err != nil {
			return err
		}
		if first == nil {
			first = now
		}
		for pod, said := range now {
			for to, r := range said {
				was := first[pod][to]
				if r.Lasting.Echoed < was.Lasting.Echoed || r.Fresh.Echoed < was.Fresh.Echoed { // the pod has been restarted
					first[pod][to] = r
				}
				if r.Lasting.Echoed <= was.Lasting.Echoed || r.Fresh.Echoed <= was.Fresh.Echoed {
					stuck = to
					if time.Since(begun) > expected && !told {
						told = true
						t.Logf("%s to %s: was %+v, is %+v; open connections in the switches:%s", pod, to, was, r, f.remembered(ctx, to))
					}
					return fmt.Errorf("%s to %s: was %+v, is %+v", pod, to, was, r)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("%v\nopen connections to %s in the switches:%s", err, stuck, f.remembered(t.Context(), stuck))
	}
}

// remembered returns the neighbors of the outside host, and the conntrack entries of the switches for established connections to a
// server, to diagnose why they carry no traffic.
func (f *faultTest) remembered(ctx context.Context, to netip.AddrPort) string {
	var all strings.Builder
	out, err := f.Kin.Exec(ctx, lab.Outside, "ip", "neigh", "show", "nud", "all")
	fmt.Fprintf(&all, "\n%s:\n%s%v", lab.Outside, out, err)
	for _, node := range nodes {
		out, err := f.Kin.Exec(ctx, node, "ovs-appctl", "dpctl/dump-conntrack")
		if err != nil {
			out = err.Error()
		}
		fmt.Fprintf(&all, "\n%s:", node)
		for line := range strings.Lines(out) {
			if strings.Contains(line, fmt.Sprintf("dst=%s,", to.Addr())) && strings.Contains(line, fmt.Sprintf("dport=%d)", to.Port())) &&
				strings.Contains(line, "state=ESTABLISHED") {
				fmt.Fprintf(&all, "\n  %s", strings.TrimSpace(line))
			}
		}
	}
	return all.String()
}

// reports returns the reports of all pods, by name.
func (f *faultTest) reports(ctx context.Context, reset bool) (map[string]map[netip.AddrPort]lab.TrafficReport, error) {
	said := make([]map[netip.AddrPort]lab.TrafficReport, len(f.groups))
	err := atOnce(len(f.groups), func(i int) (err error) {
		said[i], err = f.TrafficOf(ctx, f.groups[i].pod, reset)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := map[string]map[netip.AddrPort]lab.TrafficReport{}
	for i, g := range f.groups {
		all[g.pod.Name] = said[i]
	}
	return all, nil
}
