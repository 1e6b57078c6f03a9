package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	// rebootRuns is how often the holder reboots in each of the ways; EGRESSIP_REBOOTS overrides
	// it.
	rebootRuns = 1
	// unanswered is how many requests for an address must go unanswered.
	unanswered = 50
)

// reboots has the holder reboot both while it can learn what it holds and while it cannot.
func (m *moveTest) reboots(t *testing.T) {
	for i := range number("EGRESSIP_REBOOTS", rebootRuns) {
		t.Run(fmt.Sprintf("%d Instant", i+1), m.reboot)
		if t.Failed() {
			return
		}
		m.full(t, fmt.Sprintf("%d Alone", i+1), m.rebootAlone)
		if t.Failed() {
			return
		}
	}
}

// reboot cuts the holder's power for a moment, perhaps too short for anything to notice: then it
// may keep its addresses, or lose them while it is not ready yet.
func (m *moveTest) reboot(t *testing.T) {
	holder, words := m.holder, m.follow(t)
	m.capture.release(t, holder)
	if err := m.Kin.Node(t.Context(), "kill", holder); err != nil {
		t.Fatal(err)
	}
	m.powerOn(t, holder)
	m.capture.tap(t, holder)
	m.settled(t, words)
}

// rebootAlone has the holder boot while it cannot learn what it still holds: it does not reach the
// API server, and no master takes anything away from it. Its ovn-controller has everything it had,
// including translations to the addresses; but until ovnkube has spoken, the node must not answer
// for them.
func (m *moveTest) rebootAlone(t *testing.T) {
	holder, ctx, words := m.holder, t.Context(), m.follow(t)
	if err := m.Service(ctx, "stop", lab.ControlPlane, "ovnkube-master"); err != nil {
		t.Fatal(err)
	}
	m.capture.release(t, holder)
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
	if err := m.Service(ctx, "start", lab.ControlPlane, "ovnkube-master"); err != nil {
		t.Fatal(err)
	}
	m.powerOn(t, holder)
	m.capture.tap(t, holder)
	m.settled(t, words)
}

// settled waits until both addresses are held and pods get answers, and checks which nodes
// answered: those that reported the addresses, each in its turn.
func (m *moveTest) settled(t *testing.T, words func() map[netip.Addr][]string) {
	t.Helper()
	m.asking(t)
	var holders map[netip.Addr]string
	var said map[netip.Addr][]string
	for settled := false; !settled; {
		holders, said, settled = m.programmed(t, moverName), words(), true
		for a, nodes := range said { // it may have moved on in between
			settled = settled && nodes[len(nodes)-1] == holders[a]
		}
	}
	for a, nodes := range said {
		for _, node := range nodes {
			m.held(t, a, node)
		}
	}
	m.holds(t, holders[moverIPs[0]], holders)
	m.inspect(t)
}

// follow returns a function that returns, by address, which nodes from now on reported that they
// have it, in order. On a busy machine a node may be considered dead for a moment, so there may be
// more moves than the one that the test causes.
func (m *moveTest) follow(t *testing.T) (words func() map[netip.Addr][]string) {
	t.Helper()
	start, err := m.client.Get(t.Context(), moverName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := m.client.Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + moverName, ResourceVersion: start.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	said, version := map[netip.Addr][]string{}, start.ResourceVersion
	return func() map[netip.Addr][]string {
		t.Helper()
		end, err := m.client.Get(t.Context(), moverName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for version != end.ResourceVersion {
			select {
			case event := <-watch.ResultChan():
				now, ok := event.Object.(*v1.EgressIP)
				if !ok {
					t.Fatalf("the watch of the EgressIP ended: %v", event)
				}
				version = now.ResourceVersion
				for _, word := range now.Status.Programmed {
					for _, text := range word.EgressIPs {
						a := netip.MustParseAddr(text)
						if nodes := said[a]; len(nodes) == 0 || nodes[len(nodes)-1] != word.Node {
							said[a] = append(nodes, word.Node)
						}
					}
				}
			case <-t.Context().Done():
				t.Fatal(t.Context().Err())
			}
		}
		return said
	}
}

// cutOff has the control plane reject a node's connections to the API server until the returned
// function is called.
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

// silent checks that nobody answers for the addresses while the outside host keeps asking.
func (m *moveTest) silent(t *testing.T) {
	t.Helper()
	first, err := m.claims.Packets()
	if err != nil {
		t.Fatal(err)
	}
	err = lab.Until(t.Context(), leakPatience, "requests for the addresses", func(ctx context.Context) error {
		packets, err := m.claims.Packets()
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
