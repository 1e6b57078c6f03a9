package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/test/e2e/lab"
)

// strayPort is the port to which pods send packets that belong to no connection.
const strayPort = 20892

// strayFilter matches exactly what "probe stray" sends, whatever its source: replies to servers and clients of other
// tests have other sources, rightly. ICMP errors quote a datagram from port 53, and replies have an identifier. In this language
// "and" and "or" have the same precedence.
var strayFilter = fmt.Sprintf("dst port %d", strayPort) +
	" or ip proto 47 or ip proto 50 or ip proto 253 or ip6 proto 47 or ip6 proto 50 or ip6 proto 253" +
	" or (icmp and ((icmp[0] = 3 and icmp[28:2] = 53) or (icmp[0] = 0 and icmp[4:2] = 0x1234)))" +
	" or (icmp6 and ((ip6[40] = 1 and ip6[88:2] = 53) or (ip6[40] = 129 and ip6[44:2] = 0x1234)))"

var strayIPs, strayIngress = addresses("172.18.0.236", "fc00:f853:ccd:e793::236"), addresses("5.5.5.63", "5555::3f")

// strays has pods send packets that belong to no connection, which are not translated: none may
// leave with the pod's own address. First no feature serves the pods, then an EgressIP, then an
// EgressService.
func (s *suite) strays(t *testing.T) {
	var own []netip.Addr
	for _, node := range nodes {
		addrs, err := s.NodeAddresses(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, addrs...)
	}
	pods := []lab.Pod{s.servers["a"], s.servers["b"]}
	s.allLeaveAs(t, pods)
	s.straysOf(t, "plain", pods, own)

	e := s.egressIPOf(t, pods...)
	e.assignable(t, nodes[1])
	e.create(t, "strays", strayIPs, held)
	e.choose(t, "strays", "a", "b")
	e.programmed(t, "strays")
	s.allLeaveAs(t, pods, strayIPs...)
	s.straysOf(t, "EgressIP", pods, strayIPs)
	e.choose(t, "strays")
	e.remove(t, "strays")
	e.assignable(t)

	service := s.serve(t, "strays", strayIngress)
	served := s.serversOn(t, service.labels())
	service.announce(t)
	service.programmed(t, "")
	s.allLeaveAs(t, served, strayIngress...)
	s.straysOf(t, "EgressService", served, strayIngress)
}

// straysOf sends the packets and checks everything that arrives outside.
func (s *suite) straysOf(t *testing.T, what string, pods []lab.Pod, right []netip.Addr) {
	t.Helper()
	outside := lab.OutsideAddresses
	filter := fmt.Sprintf("(dst host %s or dst host %s) and (%s)", outside[0], outside[1], strayFilter)
	c := newFilteredCapture(t, s, filter, strayPort, right)
	var to []string
	for _, a := range outside {
		to = append(to, netip.AddrPortFrom(a, strayPort).String())
	}
	for _, pod := range pods {
		before := c.ordinary(t)
		// A datagram may be lost while others wait for a neighbor's address.
		err := lab.Until(t.Context(), egressPatience, "the last packets of "+pod.Name+" to arrive", func(ctx context.Context) error {
			if _, err := s.Call(ctx, pod.Name, true, append([]string{"stray"}, to...)...); err != nil {
				return err
			}
			now := c.ordinary(t)
			for _, a := range outside {
				if now[a] <= before[a] {
					return fmt.Errorf("none has arrived at %s", a)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	arrived, kinds := c.inspect(t), map[string]int{}
	all, err := c.taps[lab.Outside].Packets()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		// Such as "MAC > MAC, ethertype IPv4 (0x0800), length 54: 172.18.0.2.40000 > 172.18.0.100.20892: Flags [R]".
		if parts := strings.SplitN(p.Text, ": ", 3); len(parts) == 3 {
			words := strings.Fields(parts[2])
			kinds[strings.Trim(strings.Join(words[:min(2, len(words))], " "), ",")]++
		}
	}
	t.Logf("%s: %d packets arrived, all with the right source: %v", what, arrived, kinds)
	for _, tap := range c.taps {
		tap.Close()
	}
	clear(c.taps)
}

// ordinary returns how many ordinary datagrams have arrived outside, by address.
func (c *capture) ordinary(t *testing.T) map[netip.Addr]int {
	t.Helper()
	arrived := map[netip.Addr]int{}
	all, err := c.taps[lab.Outside].Packets()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Destination.Port() == strayPort && strings.HasSuffix(p.Text, "length "+strconv.Itoa(len("ordinary"))) {
			arrived[p.Destination.Addr()]++
		}
	}
	return arrived
}
