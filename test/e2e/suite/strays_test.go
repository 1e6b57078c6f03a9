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
	for _, pod := range pods {
		s.leavesAs(t, pod)
	}
	s.straysOf(t, "plain", pods, own)

	e := s.egressIPOf(t, pods...)
	e.assignable(t, nodes[1])
	e.create(t, "strays", strayIPs, held)
	e.choose(t, "strays", "a", "b")
	e.programmed(t, "strays")
	for _, pod := range pods {
		s.leavesAs(t, pod, strayIPs...)
	}
	s.straysOf(t, "EgressIP", pods, strayIPs)
	e.choose(t, "strays")
	e.remove(t, "strays")
	e.assignable(t)

	service := s.serve(t, "strays", strayIngress)
	served := s.serversOn(t, service.labels())
	service.announce(t)
	service.programmed(t, "")
	for _, pod := range served {
		s.leavesAs(t, pod, strayIngress...)
	}
	s.straysOf(t, "EgressService", served, strayIngress)
}

// straysOf sends the packets and checks everything that arrives outside.
func (s *suite) straysOf(t *testing.T, what string, pods []lab.Pod, right []netip.Addr) {
	t.Helper()
	outside := lab.OutsideAddresses
	// Neighbor discovery is no traffic of a pod, and what goes to servers are the test's own questions.
	filter := fmt.Sprintf("(dst host %s or dst host %s) and not arp and not tcp dst portrange %d-%d and not (icmp6 and ip6[40] >= 133 and ip6[40] <= 137)",
		outside[0], outside[1], lab.ServePort, lab.EchoPort)
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
	all, err := c.taps[lab.Outside].Packets(t.Context())
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
	all, err := c.taps[lab.Outside].Packets(t.Context())
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
