package node

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/routed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// inbound describes how clients reach the pod in a family.
var inbound = []struct{ tool, host, pod, self string }{
	{"iptables", "192.0.2.1", "10.244.1.3", "10.244.1.2"},
	{"ip6tables", "2001:db8::1", "fd00:10:244:2::3", "fd00:10:244:2::2"},
}

// prepared returns the rules of an EgressIP on a secondary network for the node's pod.
func prepared() egressip.HostState {
	link := dummy("dummy")
	link.Routes = nil
	seats := []egressip.LinkAssignment{{Addr: netip.MustParseAddr("10.10.10.5"), Link: link}, {Addr: netip.MustParseAddr("fd10::5"), Link: link}}
	pods := []netip.Addr{netip.MustParseAddr(inbound[0].pod), netip.MustParseAddr(inbound[1].pod)}
	return egressip.HostPlan(seats, func(netip.Addr) bool { return false }, pods)
}

// TestInbound: outside clients reach a pod through its node, which holds the pod's
// EgressIP on a secondary network: the replies go back to them. With a host port the
// pod sees the node, with externalTrafficPolicy Local the client.
func TestInbound(t *testing.T) {
	node := netnstest.New(t)
	ends := routed.New(t, node)
	l := &lab{t: t, ns: node, ids: ids{}}
	l.restart()
	l.apply(prepared())
	for _, c := range inbound {
		to := func(port string) string { return "[" + c.pod + "]:" + port }
		if c.tool == "iptables" {
			to = func(port string) string { return c.pod + ":" + port }
		}
		node.Run(c.tool, "-t", "nat", "-A", "PREROUTING", "-i", "breth0", "-p", "udp", "-j", "DNAT", "--to-destination", to("7777"))
		node.Run(c.tool, "-t", "nat", "-A", "POSTROUTING", "-o", topology.ManagementPort, "-p", "udp", "-m", "conntrack",
			"--ctorigdstport", "8080", "-j", "SNAT", "--to-source", c.self)
		pod, client := ends.Listen(ends.Pods, c.pod, 7777), ends.Listen(ends.Outside, "", 0)
		go func() {
			buffer := make([]byte, 9)
			for {
				n, from, err := pod.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = pod.WriteTo(buffer[:n], from)
			}
		}()
		for _, port := range []int{8080, 9090} { // a host port, a Service
			eventually.True(t, fmt.Sprintf("an answer from %s:%d", c.host, port), func() bool {
				if _, err := client.WriteTo([]byte("x"), &net.UDPAddr{IP: net.ParseIP(c.host), Port: port}); err != nil {
					t.Fatal(err)
				}
				_ = client.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
				_, from, err := client.ReadFromUDPAddrPort(make([]byte, 9))
				return err == nil && from.Addr().Unmap().String() == c.host && int(from.Port()) == port
			})
		}
	}
}
