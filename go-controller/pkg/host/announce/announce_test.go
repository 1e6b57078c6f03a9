package announce

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// neighbours makes two hosts on one wire: the test's namespace is the neighbour, with link near0;
// addresses move to far0 in another namespace.
func neighbours(t *testing.T) *netnstest.NS {
	t.Helper()
	ns := netnstest.New(t)
	ns.Veth("near0", "far0")
	ns.Run("ip", "addr", "add", "172.18.0.9/16", "dev", "near0")
	ns.Run("ip", "addr", "add", "fc00::9/64", "dev", "near0", "nodad")
	return ns
}

// TestNeighbour makes a real kernel believe that an address moved that it knew at another MAC
// address.
func TestNeighbour(t *testing.T) {
	ns := neighbours(t)
	far, err := netlink.LinkByName("far0")
	if err != nil {
		t.Fatal(err)
	}
	var a Announcer
	for _, addr := range []netip.Addr{netip.MustParseAddr("172.18.0.33"), netip.MustParseAddr("fc00::33")} {
		ns.Run("ip", "neigh", "replace", addr.String(), "lladdr", "02:00:00:00:00:99", "dev", "near0", "nud", "reachable")
		if err := a.Start("far0", addr); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the neighbour to believe it of "+addr.String(), func() bool {
			return strings.Contains(ns.Run("ip", "neigh", "show", addr.String()), far.Attrs().HardwareAddr.String())
		})
		a.Stop(addr)
	}
}

// TestRepeat checks that an address is announced several times, and no more once stopped.
func TestRepeat(t *testing.T) {
	neighbours(t)
	addr := netip.MustParseAddr("172.18.0.33")
	heard := listen(t, "near0")
	var a Announcer
	if err := a.Start("far0", addr); err != nil {
		t.Fatal(err)
	}
	count := 0
	eventually.True(t, "the second announcement", func() bool {
		count += heard()
		return count >= 4 // a request and a reply each time
	})
	a.mu.Lock()
	c := a.running[addr]
	a.mu.Unlock()
	a.Stop(addr)
	select {
	case <-c.ended:
	default:
		t.Error("it goes on after Stop")
	}
}

func TestErrors(t *testing.T) {
	ns := neighbours(t)
	var a Announcer
	addr := netip.MustParseAddr("172.18.0.33")
	if err := a.Start("none0", addr); err == nil {
		t.Error("announced on a link that is not there")
	}
	ns.Run("ip", "link", "set", "far0", "down")
	if err := a.Start("far0", addr); err == nil {
		t.Error("announced on a link that is down")
	}
	a.Stop(addr) // nothing to stop
}

// listen returns a function that counts the ARP frames that have arrived on a link since it was
// last called.
func listen(t *testing.T, link string) func() int {
	t.Helper()
	dev, err := netlink.LinkByName(link)
	if err != nil {
		t.Fatal(err)
	}
	const arp = unix.ETH_P_ARP<<8 | unix.ETH_P_ARP>>8 // network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, arp&0xffff)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: arp & 0xffff, Ifindex: dev.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	return func() int {
		count, frame := 0, make([]byte, 100)
		for {
			n, from, err := unix.Recvfrom(fd, frame, 0)
			if err != nil || n == 0 {
				return count
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype != unix.PACKET_OUTGOING {
				count++
			}
		}
	}
}
