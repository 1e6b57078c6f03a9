package suite

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	moverName = "mover"
	// moverRuns is how often a node loses power for a long time; EGRESSIP_FAILOVERS overrides it.
	// plannedRuns is how often a label change causes a move; EGRESSIP_MOVES overrides it.
	moverRuns, plannedRuns = 1, 1
)

var moverIPs = addresses("172.18.0.211", "fc00:f853:ccd:e793::211")

// moves moves the addresses of an EgressIP from node to node, while pods query the outside host all
// the time, and the outside host asks the wire who has the addresses. Open connections continue
// when the addresses move, move back, are taken from a node that dies, and move back to it.
func (e *egressIPTest) moves(t *testing.T) {
	m := &moveTest{egressIPTest: e, chain: map[netip.Addr][]string{}, macs: map[string]string{},
		kept: &keptTest{egressIPTest: e, name: moverName}}
	m.kept.stall, m.kept.judged = m.stall, m.judged
	m.begin(t)
	defer m.end(t)
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Label", m.label},
		{"Stray", m.stray},
		{"Drain", m.drain},
		{"Cordon", m.cordon},
		{"Stop", m.stop},
		{"Unprepared", m.unprepared},
		{"Kill", m.killAll},
	} {
		t.Run(step.name, step.run)
		if t.Failed() {
			return
		}
	}
	for i := range number("EGRESSIP_FAILOVERS", moverRuns) {
		t.Run(fmt.Sprintf("%d PowerFailure", i+1), m.powerFailure)
		if t.Failed() {
			return
		}
		t.Run(fmt.Sprintf("%d BackToWhoDied", i+1), m.backToWhoDied)
		if t.Failed() {
			return
		}
	}
	m.kept.close(t)
	t.Run("Reboot", m.reboots)
}

// moveTest is the test in progress: both addresses are always on the same node.
type moveTest struct {
	*egressIPTest
	holder  string
	capture *capture // of what the pods send
	claims  *lab.Capture
	silence func()
	// chain has the holders so far by address, as the MAC addresses that must have answered, in
	// this order and each only in its turn.
	chain map[netip.Addr][]string
	macs  map[string]string // of the nodes' bridges
	kept  *keptTest         // open connections
	since time.Time         // start of the current measurement of gaps
	// deaths is how often a node had been considered dead at that time; mistaken says that in a
	// planned move one was that is alive, so that nobody waited for it.
	deaths   int
	mistaken bool
}

// pulses are the pods that query, by name: one on a node that never holds an address, one on a node
// that does.
var pulses = map[string]string{"pulse-0": lab.ControlPlane, "pulse-1": "ovn-worker"}

// eachPulse calls f for all of them at the same time.
func (m *moveTest) eachPulse(f func(name string) error) error {
	names := slices.Collect(maps.Keys(pulses))
	return atOnce(len(names), func(i int) error { return f(names[i]) })
}

func (m *moveTest) begin(t *testing.T) {
	m.assignable(t, "ovn-worker")
	m.create(t, moverName, moverIPs, held)
	m.holds(t, "ovn-worker", m.programmed(t, moverName))
	m.capture = newCapture(t, m.suite, lab.ServePort, lab.ServePort, moverIPs)
	var err error
	if m.claims, err = m.Capture(t.Context(), lab.Outside, "eth0", "arp or icmp6"); err != nil {
		t.Fatal(err)
	}
	if m.silence, err = m.Solicit(lab.Outside, moverIPs...); err != nil {
		t.Fatal(err)
	}
	err = m.eachPulse(func(name string) error {
		_, err := m.RunPulse(t.Context(), name, pulses[name], chosen(moverName), lab.OutsideAddresses)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m.kept.open(t, lab.OutsideAddresses)
	m.asking(t)
	m.inspect(t)
	m.assignable(t, "ovn-worker", "ovn-worker2")
}

func (m *moveTest) end(t *testing.T) {
	if m.silence != nil {
		m.silence()
	}
	if m.claims != nil {
		m.claims.Close()
	}
	m.removePods(t, slices.Collect(maps.Keys(pulses))...)
	m.kept.close(t)
}

// holds records the new holder of both addresses.
func (m *moveTest) holds(t *testing.T, node string, holders map[netip.Addr]string) {
	t.Helper()
	for _, a := range moverIPs {
		if holders[a] != node {
			t.Fatalf("%s should hold everything: %v", node, holders)
		}
		m.held(t, a, node)
	}
	m.holder = node
}

// held records that a node has an address, after those that had it before.
func (m *moveTest) held(t *testing.T, a netip.Addr, node string) {
	t.Helper()
	if m.macs[node] == "" { // a booting node has no bridge for a while
		mac, err := m.Kin.Exec(t.Context(), node, "cat", "/sys/class/net/breth0/address")
		if err != nil {
			t.Fatal(err)
		}
		m.macs[node] = strings.TrimSpace(mac)
	}
	if chain := m.chain[a]; len(chain) == 0 || chain[len(chain)-1] != m.macs[node] {
		m.chain[a] = append(chain, m.macs[node])
	}
}

func (m *moveTest) other() string {
	return map[string]string{"ovn-worker": "ovn-worker2", "ovn-worker2": "ovn-worker"}[m.holder]
}

// reset discards the gaps measured so far.
func (m *moveTest) reset(t *testing.T) {
	t.Helper()
	m.since, m.deaths, m.mistaken = time.Now(), len(m.deathsLogged(t)), false
	err := m.eachPulse(func(name string) error {
		_, err := m.Pulses(t.Context(), name, true)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// asking waits until every running pulse currently gets answers in both families.
func (m *moveTest) asking(t *testing.T) {
	t.Helper()
	err := m.eachPulse(func(name string) error {
		first := map[netip.Addr]int{}
		return lab.Until(t.Context(), leakPatience, name+" to get answers", func(ctx context.Context) error {
			reports, err := m.Pulses(ctx, name, false)
			if err != nil {
				return err
			}
			for _, to := range lab.OutsideAddresses {
				was, known := first[to]
				if !known || reports[to].Echoed < was { // it may have been restarted
					first[to] = reports[to].Echoed
				}
				if !known || reports[to].Echoed < was+100 { // a second of them
					return fmt.Errorf("answers from %s: %+v", to, reports[to])
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// longest records the longest time that pods were without an answer.
func (m *moveTest) longest(t *testing.T, what string, bound figures.Bound, pods ...string) {
	t.Helper()
	var gaps []time.Duration
	for _, name := range pods {
		reports, err := m.Pulses(t.Context(), name, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range lab.OutsideAddresses {
			r := reports[to]
			t.Logf("%s, %s to %s: longest time without an answer %s, %d answers, %d lost", what, name, to, r.MaxGap(), r.Echoed, r.Reconnects)
			gaps = append(gaps, r.MaxGap())
		}
	}
	bound.Stall = m.stall(t)
	figures.Record(t, "EgressIP, new connections: "+what, bound, gaps...)
}

// worthTelling is the shortest stall that counts: ordinary load causes shorter ones.
const worthTelling = 300 * time.Millisecond

// stall returns the longest time that the outside host did nothing since gaps were last reset: it
// asks who has the addresses every few milliseconds, and while it does not, it does not answer pods
// either.
func (m *moveTest) stall(t *testing.T) time.Duration {
	t.Helper()
	packets, err := m.claims.Packets()
	if err != nil {
		t.Fatal(err)
	}
	last, longest := m.since, time.Duration(0)
	for _, p := range packets {
		// A request claims the sender's own address.
		if slices.Contains(lab.OutsideAddresses, p.Claims) && p.At.After(last) {
			longest, last = max(longest, p.At.Sub(last)), p.At
		}
	}
	if longest < worthTelling {
		return 0
	}
	t.Logf("the outside host itself stood still for %s: that much is allowed besides", longest)
	return longest
}

// planned moves the addresses to the other node.
func (m *moveTest) planned(t *testing.T, what string, act func()) {
	t.Helper()
	m.reset(t)
	m.leave(t, act)
	m.asking(t)
	m.mistaken = len(m.deathsLogged(t)) > m.deaths
	what, bound := m.judged(what, figures.Move)
	m.longest(t, what, bound, "pulse-0", "pulse-1")
	m.inspect(t)
}

// judged returns what a planned move was in the end, and what that allows: if a node was considered
// dead, a failover.
func (m *moveTest) judged(what string, bound figures.Bound) (string, figures.Bound) {
	if !m.mistaken {
		return what, bound
	}
	switch bound {
	case figures.Move:
		bound = figures.EgressIPFailover
	case figures.OpenConnectionMove:
		bound = figures.OpenConnectionFailover
	}
	return what + ", of a node that is considered dead", bound
}

// plannedKept is planned with a check of the open connections.
func (m *moveTest) plannedKept(t *testing.T, act func()) {
	t.Helper()
	const what = "planned move"
	m.kept.goOn(t, what, figures.OpenConnectionMove, func(t *testing.T) { m.planned(t, what, act) })
}

// leave does what makes the addresses move from their holder to the other node.
func (m *moveTest) leave(t *testing.T, act func()) {
	t.Helper()
	from, to := m.holder, m.other()
	act()
	m.movedFrom(t, moverName, moverIPs[0], from)
	m.holds(t, to, m.movedFrom(t, moverName, moverIPs[1], from))
}

// inspect fails the test for packets with a wrong source, and if a node answered for an address
// that it was not supposed to hold at the time.
func (m *moveTest) inspect(t *testing.T) {
	t.Helper()
	m.capture.inspect(t)
	packets, err := m.claims.Packets()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range moverIPs {
		runs := claimants(packets, a)
		var chain, said []string
		for i, r := range runs {
			chain = append(chain, r.mac)
			line := fmt.Sprintf("%s %d times from %s to %s", r.mac, r.count, r.first.Format(time.StampMicro), r.last.Format(time.StampMicro))
			if i > 0 {
				line += fmt.Sprintf(", %s after", r.first.Sub(runs[i-1].last))
			}
			said = append(said, line)
		}
		switch want := m.chain[a]; {
		case m.mistaken && len(chain) > len(want) && slices.Equal(chain[:len(want)], want) && chain[len(chain)-1] == want[len(want)-1]:
			// The former holder answers until it learns that the address has moved.
			t.Logf("a node was considered dead, and for %s answered\n%s", a, strings.Join(said, "\n"))
			m.chain[a] = chain
		case !slices.Equal(chain, want):
			t.Errorf("for %s answered\n%s\nwant %v", a, strings.Join(said, "\n"), want)
		case len(said) > 0:
			t.Logf("for %s answers %s", a, said[len(said)-1])
		}
	}
}

// run is a period in which only one machine claimed an address.
type run struct {
	mac         string
	count       int
	first, last time.Time
}

func claimants(packets []lab.Packet, a netip.Addr) []run {
	var runs []run
	for _, p := range packets {
		if p.Claims != a {
			continue
		}
		if len(runs) == 0 || runs[len(runs)-1].mac != p.MAC {
			runs = append(runs, run{mac: p.MAC, first: p.At})
		}
		r := &runs[len(runs)-1]
		r.count++
		r.last = p.At
	}
	return runs
}

// label removes the holder's label: the address moves because it has to, not because it could.
func (m *moveTest) label(t *testing.T) {
	m.holds(t, m.holder, m.programmed(t, moverName))
	for range number("EGRESSIP_MOVES", plannedRuns) {
		m.plannedKept(t, func() { m.assignable(t, m.other()) })
		m.assignable(t, "ovn-worker", "ovn-worker2")
	}
}

// backToWhoDied moves the addresses to the node that came back last: what it knows of the
// connections is from before it died.
func (m *moveTest) backToWhoDied(t *testing.T) {
	m.plannedKept(t, func() { m.assignable(t, m.other()) })
	m.assignable(t, "ovn-worker", "ovn-worker2")
}

// stray sends packets that belong to no connection to the addresses: they end at the node where
// they arrive, or at the previous holder, and do not bounce between the two.
func (m *moveTest) stray(t *testing.T) {
	const port = 7777
	var captures []*lab.Capture
	for _, node := range []string{m.holder, m.other()} {
		c, err := m.Capture(t.Context(), node, "eth0", fmt.Sprintf("udp dst port %d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		captures = append(captures, c)
	}
	for _, a := range moverIPs {
		if _, err := m.Kin.Exec(t.Context(), lab.Outside, "bash", "-c", fmt.Sprintf("echo stray >/dev/udp/%s/%d", a, port)); err != nil {
			t.Fatal(err)
		}
	}
	m.asking(t) // takes longer than any path of the packets
	for i, c := range captures {
		packets, err := c.Packets()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range moverIPs {
			seen := 0
			for _, p := range packets {
				if p.Destination == netip.AddrPortFrom(a, port) {
					seen++
				}
			}
			// Once in, and once out again.
			if holder := i == 0; holder && seen == 0 || seen > 2 {
				t.Errorf("%s saw what came for %s %d times", c.Machine, a, seen)
			}
		}
	}
}

func (m *moveTest) drain(t *testing.T) {
	holder := m.holder
	m.plannedKept(t, func() {
		m.patchNode(t, holder, `{"spec":{"taints":[{"key":"k8s.ovn.org/egress","value":"drain","effect":"NoSchedule"}]}}`)
	})
	m.patchNode(t, holder, `{"spec":{"taints":null}}`)
}

// cordon keeps new addresses away from the holder, which keeps those it has.
func (m *moveTest) cordon(t *testing.T) {
	m.reset(t)
	m.patchNode(t, m.holder, `{"spec":{"unschedulable":true}}`)
	later := addresses("172.18.0.212", "172.18.0.213")
	for i, a := range later {
		name := fmt.Sprintf("later-%d", i)
		m.create(t, name, []netip.Addr{a})
		if got := m.programmed(t, name); got[a] != m.other() {
			t.Errorf("%s was given to %s, which is cordoned", a, got[a])
		}
		m.remove(t, name)
	}
	m.holds(t, m.holder, m.programmed(t, moverName))
	m.patchNode(t, m.holder, `{"spec":{"unschedulable":null}}`)
	m.asking(t)
	m.longest(t, "no move", figures.Undisturbed, "pulse-0", "pulse-1")
	m.inspect(t)
}

// stop shuts down the holder's ovnkube gracefully: it hands over its addresses, and takes nothing
// back when it is started again.
func (m *moveTest) stop(t *testing.T) {
	holder := m.holder
	m.planned(t, "orderly stop", func() {
		if err := m.Service(t.Context(), "stop", holder, "ovnkube-node"); err != nil {
			t.Fatal(err)
		}
	})
	if err := m.Service(t.Context(), "start", holder, "ovnkube-node"); err != nil {
		t.Fatal(err)
	}
	p := nodeProcess(holder)
	if err := lab.Until(t.Context(), egressPatience, p.name+" to be ready", func(ctx context.Context) error { return m.readyz(ctx, p) }); err != nil {
		t.Fatal(err)
	}
	m.holds(t, m.holder, m.programmed(t, moverName))
}

// killAll kills the master and the holder's ovnkube at the same time: their successors must not
// write anything, and no packet may be lost.
func (m *moveTest) killAll(t *testing.T) {
	before := m.steadyState(t)
	m.reset(t)
	m.kill(t, processes[0])
	m.kill(t, nodeProcess(m.holder))
	m.sameState(t, before)
	m.holds(t, m.holder, m.programmed(t, moverName))
	m.asking(t)
	m.longest(t, "processes killed", figures.Undisturbed, "pulse-0", "pulse-1")
	m.inspect(t)
}

// powerFailure cuts the holder's power. The next holder serves pods on the other nodes; when the
// machine returns, it answers for nothing.
func (m *moveTest) powerFailure(t *testing.T) {
	holder := m.holder
	m.capture.release(t, holder)
	m.kept.goOn(t, "power failure", figures.OpenConnectionFailover, func(t *testing.T) {
		m.reset(t)
		m.leave(t, func() {
			if err := m.Kin.Node(t.Context(), "kill", holder); err != nil {
				t.Fatal(err)
			}
		})
	})
	for name, node := range pulses {
		if node == holder {
			continue
		}
		err := lab.Until(t.Context(), leakPatience, name+" to get answers again", func(ctx context.Context) error {
			first, err := m.Pulses(ctx, name, false)
			if err != nil {
				return err
			}
			return lab.Until(ctx, 2*time.Second, "more", func(ctx context.Context) error {
				now, err := m.Pulses(ctx, name, false)
				for to, r := range now {
					if r.Echoed < first[to].Echoed+20 {
						return fmt.Errorf("answers from %s: %+v", to, r)
					}
				}
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		m.longest(t, "power failure", figures.EgressIPFailover, name)
	}
	m.inspect(t)
	m.rejoin(t, holder) // otherwise no node could take over at the next failure
	m.capture.tap(t, holder)
	m.back(t)
}

// back waits for the pods of a machine that returned, and checks which nodes answered.
func (m *moveTest) back(t *testing.T) {
	t.Helper()
	holders := m.programmed(t, moverName)
	m.holds(t, holders[moverIPs[0]], holders)
	m.asking(t)
	// Pods that were ready when the machine died counted as ready until it reported otherwise.
	holders = m.programmed(t, moverName)
	m.holds(t, holders[moverIPs[0]], holders)
	m.inspect(t)
}

// neighbours asks a wire who has the addresses: only their holders may answer.
func (e *egressIPTest) neighbours(t *testing.T, machine string, device string, holders map[netip.Addr]string) {
	t.Helper()
	c, err := e.Capture(t.Context(), machine, "eth0", "arp or icmp6")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all []netip.Addr
	macs := map[netip.Addr]string{}
	for a, node := range holders {
		mac, err := e.Kin.Exec(t.Context(), node, "cat", "/sys/class/net/"+device+"/address")
		if err != nil {
			t.Fatal(err)
		}
		all, macs[a] = append(all, a), strings.TrimSpace(mac)
	}
	silence, err := e.Solicit(machine, all...)
	if err != nil {
		t.Fatal(err)
	}
	defer silence()
	err = lab.Until(t.Context(), egressPatience, "answers for all addresses", func(ctx context.Context) error {
		packets, err := c.Packets()
		if err != nil {
			return err
		}
		for _, a := range all {
			runs := claimants(packets, a)
			if len(runs) > 1 || len(runs) == 1 && runs[0].mac != macs[a] {
				t.Fatalf("%v answer for %s, want %s", runs, a, macs[a])
			}
			if len(runs) == 0 || runs[0].count < 20 {
				return fmt.Errorf("for %s answer %v", a, runs)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
