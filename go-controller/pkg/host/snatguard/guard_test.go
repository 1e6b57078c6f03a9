package snatguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

var cluster = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}

// TestGuard sends packets from a pod's address out of a host, with and without a translation, by
// the management port, and as a reply.
func TestGuard(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("uplink", "peer")
	ns.Veth("mp0", "pods")
	for dev, addrs := range map[string][]string{
		"uplink": {"192.0.2.1/24", "2001:db8::1/64"}, "mp0": {"10.244.0.2/24", "fd00:10:244::2/64"},
	} {
		for _, a := range addrs {
			args := []string{"addr", "add", a, "dev", dev}
			if strings.Contains(a, ":") {
				args = append(args, "nodad")
			}
			ns.Run("ip", args...)
		}
	}
	ns.Run("ip", "neigh", "add", "192.0.2.9", "lladdr", "02:00:00:00:00:09", "dev", "uplink")
	ns.Run("ip", "-6", "neigh", "add", "2001:db8::9", "lladdr", "02:00:00:00:00:09", "dev", "uplink")
	ns.Run("ip", "neigh", "add", "10.244.0.9", "lladdr", "02:00:00:00:00:08", "dev", "mp0")
	g := New(cluster, "mp0")
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	send := func(from, to string) {
		conn, err := (&net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}).Dial("udp", net.JoinHostPort(to, "9"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// The kernel returns EPERM if the packet was dropped on its way out.
		_, _ = conn.Write([]byte("x"))
	}
	expect := func(what string, want uint64) {
		t.Helper()
		rules := eventually.Dump(func() string { return ns.Run("nft", "list", "ruleset") })
		eventually.Succeeds(t, fmt.Sprintf("%d packets to be dropped: %s", want, what), func() error {
			got, err := g.Dropped()
			if got > want {
				t.Fatalf("%s: %d dropped, want %d", what, got, want)
			}
			if err == nil && got < want {
				err = fmt.Errorf("%d were", got)
			}
			return err
		}, rules)
	}
	send("192.0.2.1", "192.0.2.9")
	expect("the host's own", 0)
	send("10.244.0.2", "192.0.2.9")
	expect("a pod's address", 1)
	send("fd00:10:244::2", "2001:db8::9")
	expect("a pod's address of IPv6", 2)
	send("10.244.0.2", "10.244.0.9")
	expect("to a pod", 2)
	ns.Run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.244.0.2", "-o", "uplink", "-j", "SNAT", "--to-source", "192.0.2.1")
	send("10.244.0.2", "192.0.2.9")
	expect("a translated one", 2)

	before := ns.Run("nft", "-a", "list", "table", "inet", tableName)
	if err := New(cluster, "mp0").Ensure(); err != nil {
		t.Fatal(err)
	}
	if got := ns.Run("nft", "-a", "list", "table", "inet", tableName); got != before {
		t.Errorf("a guard that stands was written again:\n%s\nbefore:\n%s", got, before)
	}
	// Somebody edits the table: it is repaired, and counting continues.
	ns.Run("nft", "flush", "chain", "inet", tableName, chainName)
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	expect("after a repair", 2)
	send("fd00:10:244::2", "2001:db8::9")
	expect("after a repair, a pod's address", 3)
	for range 2 {
		if err := Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if got := ns.Run("nft", "list", "tables"); strings.Contains(got, tableName) {
		t.Errorf("left: %s", got)
	}
}

// TestCountedOnce: two callers repair the guard at once, and a third one reads the count meanwhile.
func TestCountedOnce(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("uplink", "peer")
	ns.Run("ip", "addr", "add", "10.244.0.2/24", "dev", "uplink")
	ns.Run("ip", "neigh", "add", "10.244.0.9", "lladdr", "02:00:00:00:00:09", "dev", "uplink")
	g := New(cluster, "mp0")
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", "10.244.0.9:9")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("x")) // EPERM
	eventually.True(t, "a packet to be dropped", func() bool {
		n, err := g.Dropped()
		return err == nil && n == 1
	})
	for range 20 {
		ns.Run("nft", "flush", "chain", "inet", tableName, chainName)
		repaired := make(chan struct{})
		read := ns.Go(func() {
			for n, err := uint64(1), error(nil); err == nil && n == 1; n, err = g.Dropped() {
				select {
				case <-repaired:
					return
				default:
				}
			}
			t.Error("another number during a repair")
		})
		var callers []<-chan struct{}
		for range 2 {
			callers = append(callers, ns.Go(func() {
				if err := g.Ensure(); err != nil {
					t.Error(err)
				}
			}))
		}
		for _, done := range callers {
			<-done
		}
		close(repaired)
		<-read
		if n, err := g.Dropped(); err != nil || n != 1 {
			t.Fatalf("after a repair %d dropped, %v, want 1", n, err)
		}
	}
}

// TestLoopback: packets that the host sends to its own address in the cluster, the address of the
// management port, do not leave it and are not dropped.
func TestLoopback(t *testing.T) {
	ns := netnstest.New(t)
	ns.Run("ip", "link", "set", "lo", "up")
	ns.Run("ip", "link", "add", "mp0", "type", "veth", "peer", "name", "mp0-far")
	ns.Run("ip", "link", "set", "mp0", "up")
	ns.Run("ip", "addr", "add", "10.244.0.2/24", "dev", "mp0")
	ns.Run("ip", "addr", "add", "fd00:10:244::2/64", "dev", "mp0", "nodad")
	g := New(cluster, "mp0")
	if err := g.Ensure(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"10.244.0.2", "fd00:10:244::2"} {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(addr, "9"), time.Second)
		if conn != nil {
			conn.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v, want that it refuses", addr, err)
		}
	}
	if dropped, err := g.Dropped(); err != nil || dropped != 0 {
		t.Errorf("%d counted, %v", dropped, err)
	}
}
