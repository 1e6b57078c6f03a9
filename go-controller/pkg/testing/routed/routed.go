// Package routed turns a network namespace into a node whose kernel routes between pods and the outside, with a
// namespace at each end that sends and receives.
//
// Imported by tests only.
package routed

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Node has the links ovn-k8s-mp0 to the pods, breth0 to the outside, and dummy to a secondary network.
type Node struct {
	t  testing.TB
	ns *netnstest.NS
	// Pods and Outside are the namespaces at the ends.
	Pods, Outside string
}

// New turns ns into a node.
func New(t testing.TB, ns *netnstest.NS) *Node {
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
	n := &Node{t: t, ns: ns, Pods: elsewhere(), Outside: elsewhere()}
	for name, where := range map[string]string{topology.ManagementPort: n.Pods, "breth0": n.Outside, "dummy": elsewhere()} {
		if err := link.EnsureVeth(link.Veth{Host: name, Peer: "eth0", MTU: 1500, Netns: where}); err != nil {
			t.Fatal(err)
		}
		ns.Run("ip", "link", "set", name, "up")
	}
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.breth0.rp_filter=0", "net.ipv4.conf."+topology.ManagementPort+".rp_filter=2")
	for dev, addrs := range map[string][2]string{
		topology.ManagementPort: {"10.244.1.2/24", "fd00:10:244:2::2/64"},
		"breth0":                {"192.0.2.1/24", "2001:db8::1/64"},
		"dummy":                 {"10.10.10.3/24", "fd10::3/64"},
	} {
		ns.Run("ip", "addr", "add", addrs[0], "dev", dev)
		ns.Run("ip", "addr", "add", addrs[1], "dev", dev, "nodad")
	}
	for where, addrs := range map[string][4]string{
		n.Pods:    {"10.244.1.3/24", "fd00:10:244:2::3/64", "10.244.1.2", "fd00:10:244:2::2"},
		n.Outside: {"192.0.2.9/24", "2001:db8::9/64", "192.0.2.1", "2001:db8::1"},
	} {
		n.ip(where, "link", "set", "eth0", "up")
		n.ip(where, "addr", "add", addrs[0], "dev", "eth0")
		n.ip(where, "addr", "add", addrs[1], "dev", "eth0", "nodad")
		n.ip(where, "route", "add", "default", "via", addrs[2])
		n.ip(where, "-6", "route", "add", "default", "via", addrs[3])
	}
	return n
}

func (n *Node) ip(where string, args ...string) {
	n.t.Helper()
	if err := link.Inside(where, func() error { _, err := n.ns.Try("ip", args...); return err }); err != nil {
		n.t.Fatal(err)
	}
}

// AddPod adds an address to the pods' end.
func (n *Node) AddPod(prefix string) {
	n.t.Helper()
	n.ip(n.Pods, "addr", "add", prefix, "dev", "eth0", "nodad")
}

// Listen opens a UDP socket at one end; addr may be empty and port 0.
func (n *Node) Listen(where, addr string, port int) (conn *net.UDPConn) {
	n.t.Helper()
	at := &net.UDPAddr{IP: net.ParseIP(addr), Port: port}
	err := link.Inside(where, func() (err error) { conn, err = net.ListenUDP("udp", at); return err })
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return conn
}

// Send sends a datagram.
func (n *Node) Send(from *net.UDPConn, text string, to net.Addr) {
	n.t.Helper()
	if _, err := from.WriteTo([]byte(text), to); err != nil {
		n.t.Fatal(err)
	}
}

// Receive waits for a datagram, and returns its text and source.
func (n *Node) Receive(conn *net.UDPConn) (text, from string) {
	n.t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(eventually.Bound)); err != nil {
		n.t.Fatal(err)
	}
	buffer := make([]byte, 64)
	size, addr, err := conn.ReadFromUDPAddrPort(buffer)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(buffer[:size]), addr.Addr().Unmap().String()
}
