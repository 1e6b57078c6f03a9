package snatguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// elsewhere creates a namespace that lives until the test ends, and returns its path.
func elsewhere(t *testing.T) string {
	t.Helper()
	made, hold := make(chan int, 1), make(chan struct{})
	t.Cleanup(func() { close(hold) })
	go func() {
		defer func() { <-hold }()
		made <- netnstest.New(t).FD()
	}()
	return fmt.Sprintf("/proc/self/fd/%d", <-made)
}

// forwards creates a node that forwards between a pod, 10.244.0.9 and fd00:10:244::9, and a machine
// outside, 192.0.2.9 and 2001:db8::9, whose namespaces it returns. Packets that leave by the uplink
// get the address of the node.
func forwards(t *testing.T) (node *netnstest.NS, pods, outside string) {
	t.Helper()
	node = netnstest.New(t)
	pods, outside = elsewhere(t), elsewhere(t)
	in := func(where string, f func() error) {
		t.Helper()
		if err := link.Inside(where, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []link.Veth{{Host: "mp0", Peer: "eth0", MTU: 1500, Netns: pods}, {Host: "uplink", Peer: "eth0", MTU: 1500, Netns: outside}} {
		if err := link.EnsureVeth(v); err != nil {
			t.Fatal(err)
		}
	}
	node.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	place := func(netns, dev string, addrs ...string) {
		in(netns, func() error {
			for i, a := range addrs[:2] {
				family := []string{"-4", "-6"}[i]
				args := []string{family, "addr", "add", a, "dev", dev}
				if i == 1 {
					args = append(args, "nodad")
				}
				if _, err := node.Try("ip", args...); err != nil {
					return err
				}
			}
			if _, err := node.Try("ip", "link", "set", dev, "up"); err != nil || len(addrs) == 2 {
				return err
			}
			_, err := node.Try("ip", "route", "add", "default", "via", addrs[2])
			return errors.Join(err, func() error { _, err := node.Try("ip", "-6", "route", "add", "default", "via", addrs[3]); return err }())
		})
	}
	place(fmt.Sprintf("/proc/self/fd/%d", node.FD()), "mp0", "10.244.0.2/24", "fd00:10:244::2/64")
	place(fmt.Sprintf("/proc/self/fd/%d", node.FD()), "uplink", "192.0.2.1/24", "2001:db8::1/64")
	place(pods, "eth0", "10.244.0.9/24", "fd00:10:244::9/64", "10.244.0.2", "fd00:10:244::2")
	place(outside, "eth0", "192.0.2.9/24", "2001:db8::9/64", "192.0.2.1", "2001:db8::1")
	for _, program := range []string{"iptables", "ip6tables"} {
		node.Run(program, "-t", "nat", "-A", "POSTROUTING", "-o", "uplink", "-j", "MASQUERADE")
	}
	return node, pods, outside
}

// TestReplies forwards packets that a pod sends from one port: those to a client that has asked
// pass, those to others are counted and dropped.
func TestReplies(t *testing.T) {
	node, pods, outside := forwards(t)
	in := func(where string, f func() error) {
		t.Helper()
		if err := link.Inside(where, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		node.Run(program, "-t", "mangle", "-A", "PREROUTING", "-i", "mp0", "-p", "udp", "--sport", "5060",
			"-j", "MARK", "--set-mark", strconv.Itoa(topology.MarkServicePort))
	}
	g := New(cluster, "mp0")
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ pod, out string }{{"10.244.0.9", "192.0.2.9"}, {"fd00:10:244::9", "2001:db8::9"}} {
		var server, client, other *net.UDPConn
		listen := func(where, addr string, port int) (conn *net.UDPConn) {
			in(where, func() (err error) {
				conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(addr), Port: port})
				return err
			})
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		server, client, other = listen(pods, c.pod, 5060), listen(outside, c.out, 0), listen(outside, c.out, 0)
		usual, anybody := listen(pods, c.pod, 0), listen(outside, c.out, 0)
		within := func(patience time.Duration, who *net.UDPConn) (from netip.AddrPort, ok bool) {
			if err := who.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			_, from, err := who.ReadFromUDPAddrPort(make([]byte, 9))
			return from, err == nil
		}
		hears := func(who *net.UDPConn) (netip.AddrPort, bool) { return within(eventually.Bound, who) }
		const silence = 300 * time.Millisecond
		send := func(from *net.UDPConn, to net.Addr) {
			if _, err := from.WriteTo([]byte("x"), to); err != nil {
				t.Fatal(err)
			}
		}
		eventually.True(t, "a way out for "+c.pod, func() bool {
			send(usual, anybody.LocalAddr())
			_, ok := within(silence, anybody)
			return ok
		})
		for range 2 {
			send(client, server.LocalAddr())
			if _, ok := hears(server); !ok {
				t.Fatalf("the pod %s does not hear its client", c.pod)
			}
			send(server, client.LocalAddr())
			if from, ok := hears(client); !ok || from.Addr().Unmap().String() != c.pod {
				t.Errorf("the client of %s hears %v, %s", c.pod, ok, from)
			}
			send(server, other.LocalAddr()) // the second time a connection might exist
			if from, ok := within(silence, other); ok {
				t.Errorf("somebody else hears %s", from)
			}
		}
		dropped, err := g.NoReply()
		if want := uint64(2 * (i + 1)); err != nil || dropped != want {
			t.Errorf("%s: %d dropped, want %d: %v", c.pod, dropped, want, err)
		}
	}
	if other, err := g.Dropped(); err != nil || other != 0 {
		t.Errorf("%d with a pod's address: %v", other, err)
	}
}
