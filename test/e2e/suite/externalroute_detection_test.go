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
	// floodTargets is how many addresses of each family are flooded. Datagrams are distributed by
	// their addresses alone: with so many, some go through each gateway.
	floodTargets = 12
)

// detection has a pod send continuously while a gateway's BFD dies: once OVN reports the gateway as
// down and the node has followed, no packet may arrive there any more. How long that took after the
// gateway's last BFD packet is recorded as a figure.
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
	captures := make([]*lab.Capture, len(g.gateways))
	for i, gw := range g.gateways {
		filter := fmt.Sprintf("udp dst port %d or (udp dst port %d and src host (%s))", floodPort, bfdPort, strings.Join(addressesOf(gw), " or "))
		c, err := g.Capture(t.Context(), gw.Name, "eth0", filter)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		captures[i] = c
		g.arrived(t, c, floodPort, time.Time{})
		g.arrived(t, c, bfdPort, time.Time{})
	}
	dead, alive := captures[0], captures[1]
	if err := g.KillBFD(t.Context(), g.gateways[0]); err != nil {
		t.Fatal(err)
	}
	for _, a := range g.gateways[0].Addresses {
		err := lab.Until(t.Context(), 20*time.Second, "the session with "+a.String()+" to be down", func(ctx context.Context) error {
			status, err := g.BFD(ctx, floodNode, g.gateways[0], a)
			if err == nil && status != "down" {
				err = fmt.Errorf("it is %q", status)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// When this returns, every chassis has applied what northd made of it.
	barrier, err := g.Kin.Exec(t.Context(), lab.ControlPlane, "sh", "-ec", "ovn-nbctl --timeout=20 --wait=hv sync; date +%s.%N")
	if err != nil {
		t.Fatal(err)
	}
	followed := parseTime(t, strings.TrimSpace(barrier))
	g.arrived(t, alive, floodPort, followed.Add(time.Second))
	var to []netip.AddrPort // see lab.Capture.Proven
	for _, a := range g.OfFamilies(lab.Beyond) {
		to = append(to, netip.AddrPortFrom(a, floodPort))
	}
	all, err := dead.Proven(t.Context(), "udp", to...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Destination.Port() == floodPort && p.At.After(followed) {
			t.Errorf("a packet to %s came %s after its routes were gone", p.Destination, p.At.Sub(followed))
		}
	}
	g.reportDetection(t, all)
	if err := g.StartBFD(t.Context(), g.gateways[0], bfdInterval); err != nil {
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

// parseTime parses seconds since the epoch.
func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// arrived waits until packets to a port, in each family, were captured at a gateway after the given
// time.
func (g *gatewayTest) arrived(t *testing.T, c *lab.Capture, port uint16, after time.Time) {
	t.Helper()
	err := lab.Until(t.Context(), 20*time.Second, fmt.Sprintf("packets to port %d at %s", port, c.Machine), func(ctx context.Context) error {
		all, err := c.Packets()
		if err != nil {
			return err
		}
		got := map[bool]int{}
		for _, p := range all {
			if p.Destination.Port() == port && p.At.After(after) {
				got[p.Destination.Addr().Is4()]++
			}
		}
		for family, is4 := range g.families() {
			if got[is4] < 3*len(nodes) { // for the gateway's own packets, some to each node
				return fmt.Errorf("%d packets of %s so far", got[is4], family)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reportDetection records when the last packet arrived at the gateway that died, counted from its
// last BFD packet to the node: BFD allows it to be silent for the detection time.
func (g *gatewayTest) reportDetection(t *testing.T, all []lab.Packet) {
	t.Helper()
	timers := watched().BFD
	limit := time.Duration(*timers.Multiplier) * time.Duration(*timers.MinRx) * time.Millisecond
	var took []time.Duration
	for _, is4 := range g.families() {
		node, err := g.nodeAddress(t.Context(), floodNode, is4)
		if err != nil {
			t.Fatal(err)
		}
		var heard, last time.Time
		for _, p := range all {
			switch {
			case p.Destination == netip.AddrPortFrom(node, bfdPort):
				heard = p.At
			case p.Destination.Port() == floodPort && p.Destination.Addr().Is4() == is4:
				last = p.At
			}
		}
		took = append(took, last.Sub(heard))
	}
	figures.Record(t, fmt.Sprintf("external gateways, traffic to one that died, BFD of %s", limit), figures.BFDDetection(limit), took...)
}

// recreated deletes and recreates a policy while ovn-controller on a node is stopped: it must not
// mistake its existing sessions for the new ones. It is stopped for less time than the gateway
// needs to notice, since a session that goes down starts anew.
func (g *gatewayTest) recreated(t *testing.T) {
	ctx := t.Context()
	next := hops(watched(), g.gateways[0])
	g.policy(t, next)
	g.uses(t, 30*time.Second, false, g.gateways[0])
	proceed := g.suspend(t, process{name: "ovn-controller", node: floodNode, pattern: "^ovn-controller "})
	followed := func() { // northd has processed the change
		t.Helper()
		if _, err := g.Kin.Exec(ctx, lab.ControlPlane, "ovn-nbctl", "--timeout=20", "--wait=sb", "sync"); err != nil {
			t.Error(err)
		}
	}
	g.remove(t)
	g.unused(t, g.gateways[0])
	followed()
	g.policy(t, next)
	followed()
	proceed()
	g.uses(t, 20*time.Second, false, g.gateways[0])
}
