package node

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// router makes this namespace a node: ovn-k8s-mp0 leads to a pod, breth0 to the
// outside, and dummy to a secondary network. It returns the namespaces of the pod and
// of the outside.
func router(t *testing.T, node *netnstest.NS) (pods, outside string) {
	t.Helper()
	elsewhere := func() string {
		made, hold := make(chan int, 1), make(chan struct{})
		t.Cleanup(func() { close(hold) })
		go func() {
			defer func() { <-hold }()
			made <- netnstest.New(t).FD()
		}()
		return fmt.Sprintf("/proc/self/fd/%d", <-made)
	}
	pods, outside = elsewhere(), elsewhere()
	for name, where := range map[string]string{topology.ManagementPort: pods, "breth0": outside, "dummy": elsewhere()} {
		if err := link.EnsureVeth(link.Veth{Host: name, Peer: "eth0", MTU: 1500, Netns: where}); err != nil {
			t.Fatal(err)
		}
		node.Run("ip", "link", "set", name, "up")
	}
	node.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.breth0.rp_filter=0", "net.ipv4.conf."+topology.ManagementPort+".rp_filter=2")
	for dev, addrs := range map[string][2]string{
		topology.ManagementPort: {"10.244.1.2/24", "fd00:10:244:2::2/64"},
		"breth0":                {"192.0.2.1/24", "2001:db8::1/64"},
		"dummy":                 {"10.10.10.3/24", "fd10::3/64"},
	} {
		node.Run("ip", "addr", "add", addrs[0], "dev", dev)
		node.Run("ip", "addr", "add", addrs[1], "dev", dev, "nodad")
	}
	for where, addrs := range map[string][4]string{
		pods:    {"10.244.1.3/24", "fd00:10:244:2::3/64", "10.244.1.2", "fd00:10:244:2::2"},
		outside: {"192.0.2.9/24", "2001:db8::9/64", "192.0.2.1", "2001:db8::1"},
	} {
		err := link.Inside(where, func() error {
			for _, args := range [][]string{
				{"link", "set", "eth0", "up"}, {"addr", "add", addrs[0], "dev", "eth0"}, {"addr", "add", addrs[1], "dev", "eth0", "nodad"},
				{"route", "add", "default", "via", addrs[2]}, {"-6", "route", "add", "default", "via", addrs[3]},
			} {
				if _, err := node.Try("ip", args...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return pods, outside
}

// inbound is how clients come to the pod in a family.
var inbound = []struct{ tool, host, pod, self string }{
	{"iptables", "192.0.2.1", "10.244.1.3", "10.244.1.2"},
	{"ip6tables", "2001:db8::1", "fd00:10:244:2::3", "fd00:10:244:2::2"},
}

// prepared has the rules of an EgressIP on a secondary network for the pod of router.
func prepared() egressip.HostState {
	link := dummy("dummy")
	link.Routes = nil
	seats := []egressip.LinkAssignment{{Addr: netip.MustParseAddr("10.10.10.5"), Link: link}, {Addr: netip.MustParseAddr("fd10::5"), Link: link}}
	pods := []netip.Addr{netip.MustParseAddr(inbound[0].pod), netip.MustParseAddr(inbound[1].pod)}
	return egressip.HostPlan(seats, func(netip.Addr) bool { return false }, pods)
}

// TestInbound has clients outside call a pod through its node, which holds the pod's
// EgressIP on a secondary network: the answers go back to them. With a host port the
// pod sees the node, with externalTrafficPolicy Local the client.
func TestInbound(t *testing.T) {
	node := netnstest.New(t)
	pods, outside := router(t, node)
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
		var pod, client *net.UDPConn
		listen := func(where string, at *net.UDPAddr) (conn *net.UDPConn) {
			if err := link.Inside(where, func() (err error) { conn, err = net.ListenUDP("udp", at); return err }); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		pod, client = listen(pods, &net.UDPAddr{IP: net.ParseIP(c.pod), Port: 7777}), listen(outside, nil)
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
