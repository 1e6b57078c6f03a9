package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// rebootRuns is how often the holder boots in each of the ways; EGRESSIP_REBOOTS
	// replaces it.
	rebootRuns = 1
	// unanswered is how many requests for an address have to go without an answer.
	unanswered = 50
)

// reboots have the holder boot with and without somebody to tell it what it has.
func (m *moveTest) reboots(t *testing.T) {
	for i := range number("EGRESSIP_REBOOTS", rebootRuns) {
		t.Run(fmt.Sprintf("%d Instant", i+1), m.reboot)
		if t.Failed() {
			return
		}
		t.Run(fmt.Sprintf("%d Alone", i+1), m.rebootAlone)
		if t.Failed() {
			return
		}
	}
}

// reboot takes the holder's power for an instant, maybe too short for anybody to
// notice: then it may keep its addresses, or lose them while it is not ready yet.
func (m *moveTest) reboot(t *testing.T) {
	holder := m.holder
	if err := m.Kin.Node(t.Context(), "kill", holder); err != nil {
		t.Fatal(err)
	}
	m.powerOn(t, holder)
	m.watchMachine(t, holder, lab.ServePort, lab.ServePort, moverIPs)
	m.back(t)
}

// rebootAlone has the holder boot while nobody can tell it what it still has: it
// does not reach the API server, and no master takes anything away from it. Its
// ovn-controller has all it had, translations with the addresses included; but as
// long as ovnkube has not spoken, the node answers for nothing.
func (m *moveTest) rebootAlone(t *testing.T) {
	holder, ctx := m.holder, t.Context()
	if err := m.Kin.Service(ctx, "stop", lab.ControlPlane, "ovnkube-master"); err != nil {
		t.Fatal(err)
	}
	if err := m.Kin.Node(ctx, "kill", holder); err != nil {
		t.Fatal(err)
	}
	reconnect := m.cutOff(t, holder)
	if err := m.Kin.Node(ctx, "start", holder); err != nil {
		t.Fatal(err)
	}
	err := lab.Until(ctx, egressPatience, "the flows of the gateway router of "+holder, func(ctx context.Context) error {
		flows, err := m.Kin.Exec(ctx, holder, "ovs-ofctl", "dump-flows", "br-int")
		if err != nil {
			return err
		}
		for _, a := range moverIPs {
			match := "nd_target=" + a.String()
			if a.Is4() {
				match = "arp_tpa=" + a.String()
			}
			if !strings.Contains(flows, match) {
				return fmt.Errorf("no flow has %s", match)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m.silent(t)
	reconnect()
	if err := m.Kin.Service(ctx, "start", lab.ControlPlane, "ovnkube-master"); err != nil {
		t.Fatal(err)
	}
	m.powerOn(t, holder)
	m.watchMachine(t, holder, lab.ServePort, lab.ServePort, moverIPs)
	m.back(t)
}

// cutOff has the control plane refuse a node's connections to the API server until
// the returned function is called.
func (m *moveTest) cutOff(t *testing.T, node string) (reconnect func()) {
	t.Helper()
	addrs, err := m.NodeAddresses(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	commands := []string{"add table inet cut", "add chain inet cut input { type filter hook input priority -300; }"}
	for _, a := range addrs {
		family := map[bool]string{true: "ip", false: "ip6"}[a.Is4()]
		commands = append(commands, fmt.Sprintf("add rule inet cut input %s saddr %s tcp dport 6443 reject with tcp reset", family, a))
	}
	for _, c := range commands {
		if _, err := m.Kin.Exec(t.Context(), lab.ControlPlane, "nft", c); err != nil {
			t.Fatal(err)
		}
	}
	done := false
	reconnect = func() {
		if done {
			return
		}
		done = true
		if _, err := m.Kin.Exec(context.WithoutCancel(t.Context()), lab.ControlPlane, "nft", "delete table inet cut"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(reconnect)
	return reconnect
}

// silent checks that nobody answers for the addresses while the outside host goes
// on asking.
func (m *moveTest) silent(t *testing.T) {
	t.Helper()
	first, err := m.claims.Packets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = lab.Until(t.Context(), leakPatience, "requests for the addresses", func(ctx context.Context) error {
		packets, err := m.claims.Packets(ctx)
		if err != nil {
			return err
		}
		for _, a := range moverIPs {
			asked := 0
			for _, p := range packets[len(first):] {
				if p.Claims == a {
					t.Fatalf("%s answers for %s, and nobody has told it that it still may: %s", p.MAC, a, p.Text)
				}
				if strings.Contains(p.Text, "who-has "+a.String()+" ") || strings.Contains(p.Text, "who has "+a.String()+",") {
					asked++
				}
			}
			if asked < unanswered {
				return fmt.Errorf("only %d for %s", asked, a)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// back waits for the pods of a machine that returned, and looks at who answered.
func (m *moveTest) back(t *testing.T) {
	t.Helper()
	holders := m.programmed(t, moverName)
	m.holds(t, holders[moverIPs[0]], holders)
	m.asking(t)
	// What was ready when it died passed for ready until it said otherwise.
	holders = m.programmed(t, moverName)
	m.holds(t, holders[moverIPs[0]], holders)
	m.inspect(t)
}
