package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/test/e2e/figures"
	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

const (
	floodPort = 9
	bfdPort   = 3784
	floodNode = "ovn-worker"
	// floodTargets is how many addresses of each family are flooded. Datagrams are
	// spread by their addresses alone: of so many some go through each gateway.
	floodTargets = 12
)

// detection has a pod send without end while a gateway's BFD dies: once OVN says
// that the gateway is down and its node follows, no packet gets there any more.
// How long that took after the gateway's last word is kept as a figure.
func (g *gatewayTest) detection(t *testing.T) {
	g.policy(t, hops(watched(), g.gateways...))
	g.uses(t, 30*time.Second, false, g.gateways...)
	const name = "flood"
	var targets []netip.Addr
	for _, a := range g.OfFamilies(lab.Beyond) {
		for range floodTargets {
			targets = append(targets, a)
			a = a.Next()
		}
	}
	if _, err := g.RunFlood(t.Context(), name, floodNode, targets, floodPort); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.DeletePod(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	for _, gw := range g.gateways {
		g.record(t, gw.Name, fmt.Sprintf("udp dst port %d or (udp dst port %d and src host (%s))", floodPort, bfdPort,
			strings.Join(addressesOf(gw), " or ")))
		g.arrived(t, gw, floodPort, time.Time{})
		g.arrived(t, gw, bfdPort, time.Time{})
	}
	dead, alive := g.gateways[0], g.gateways[1]
	if err := g.KillBFD(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	for _, a := range dead.Addresses {
		err := lab.Until(t.Context(), 20*time.Second, "the session with "+a.String()+" to be down", func(ctx context.Context) error {
			status, err := g.BFD(ctx, floodNode, a)
			if err == nil && status != "down" {
				err = fmt.Errorf("it is %q", status)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Every chassis has followed what northd made of it when this returns.
	barrier, err := g.Kin.Exec(t.Context(), lab.ControlPlane, "sh", "-ec", "ovn-nbctl --timeout=20 --wait=hv sync; date +%s.%N")
	if err != nil {
		t.Fatal(err)
	}
	followed := parseTime(t, strings.TrimSpace(barrier))
	g.arrived(t, alive, floodPort, followed)
	for _, p := range g.packets(t, dead) {
		if p.port == floodPort && p.at.After(followed) {
			t.Errorf("a packet to %s came %s after its routes were gone", p.to, p.at.Sub(followed))
		}
	}
	g.reportDetection(t, dead)
	if err := g.StartBFD(t.Context(), dead, bfdInterval); err != nil {
		t.Fatal(err)
	}
	g.uses(t, 30*time.Second, false, g.gateways...)
}

func addressesOf(gw lab.Gateway) (texts []string) {
	for _, a := range gw.Addresses {
		texts = append(texts, a.String())
	}
	return texts
}

// record writes what goes over the wire of a machine to its /run/record until the
// test ends.
func (g *gatewayTest) record(t *testing.T, machine, filter string) {
	t.Helper()
	a, err := g.Kin.ExecAttached(machine, "sh", "-c",
		`tcpdump --immediate-mode -ttnnl -i eth0 "$0" >/run/record 2>/run/record.err & cat >/dev/null; kill $!; wait`, filter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	err = lab.Until(t.Context(), 20*time.Second, "the record on "+machine, func(ctx context.Context) error {
		_, err := g.Kin.Exec(ctx, machine, "grep", "-q", "listening on", "/run/record.err")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// packet is one of a record.
type packet struct {
	at       time.Time
	from, to netip.Addr
	port     uint16
}

// packets reads what tcpdump recorded on a gateway.
func (g *gatewayTest) packets(t *testing.T, gw lab.Gateway) []packet {
	t.Helper()
	out, err := g.Kin.Exec(t.Context(), gw.Name, "cat", "/run/record")
	if err != nil {
		t.Fatal(err)
	}
	var all []packet
	for line := range strings.Lines(out) {
		// "SECONDS IP6 ADDRESS.PORT > ADDRESS.PORT: ..."
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[3] != ">" {
			continue
		}
		from, _, err1 := addrDotPort(fields[2])
		to, port, err2 := addrDotPort(strings.TrimSuffix(fields[4], ":"))
		if err1 != nil || err2 != nil {
			continue // a line that is still being written
		}
		all = append(all, packet{parseTime(t, fields[0]), from, to, port})
	}
	return all
}

func addrDotPort(text string) (netip.Addr, uint16, error) {
	dot := strings.LastIndex(text, ".")
	if dot < 0 {
		return netip.Addr{}, 0, fmt.Errorf("%q has no port", text)
	}
	addr, err := netip.ParseAddr(text[:dot])
	if err != nil {
		return netip.Addr{}, 0, err
	}
	port, err := strconv.ParseUint(text[dot+1:], 10, 16)
	return addr, uint16(port), err
}

// parseTime reads seconds since the epoch.
func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// arrived waits until packets to a port, of each family, were seen at a gateway
// after a time.
func (g *gatewayTest) arrived(t *testing.T, gw lab.Gateway, port uint16, after time.Time) {
	t.Helper()
	err := lab.Until(t.Context(), 20*time.Second, fmt.Sprintf("packets to port %d at %s", port, gw.Name), func(context.Context) error {
		got := map[bool]int{}
		for _, p := range g.packets(t, gw) {
			if p.port == port && p.at.After(after) {
				got[p.to.Is4()]++
			}
		}
		for family, is4 := range g.families() {
			if got[is4] < 3*len(nodes) { // some to each node, where they are the gateway's own
				return fmt.Errorf("%d packets of %s so far", got[is4], family)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reportDetection keeps when the last packet came to the gateway that died, counted from
// its last word to the node: BFD allows it to be silent for the detection time.
func (g *gatewayTest) reportDetection(t *testing.T, dead lab.Gateway) {
	t.Helper()
	timers := watched().BFD
	limit := time.Duration(*timers.Multiplier) * time.Duration(*timers.MinRx) * time.Millisecond
	all := g.packets(t, dead)
	var took []time.Duration
	for _, is4 := range g.families() {
		node, err := g.nodeAddress(t.Context(), floodNode, is4)
		if err != nil {
			t.Fatal(err)
		}
		var heard, last time.Time
		for _, p := range all {
			switch {
			case p.port == bfdPort && p.to == node:
				heard = p.at
			case p.port == floodPort && p.to.Is4() == is4:
				last = p.at
			}
		}
		took = append(took, last.Sub(heard))
	}
	figures.Record(t, fmt.Sprintf("external gateways, traffic to one that died, BFD of %s", limit), figures.BFDDetection(limit), took...)
}
