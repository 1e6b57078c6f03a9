package node

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestStray: what comes for an address that this host is prepared for, before it has
// it and afterwards, leaves no trace. A connection of the host's own would take the
// port from the pod whose connection it is.
func TestStray(t *testing.T) {
	outside := netnstest.New(t)
	ns := netnstest.New(t) // where this goroutine stays
	ns.Veth("dummy", "wire")
	wire, err := netlink.LinkByName("wire")
	if err == nil {
		err = netlink.LinkSetNsFd(wire, outside.FD())
	}
	if err != nil {
		t.Fatal(err)
	}
	ns.Run("ip", "addr", "add", "10.10.10.3/24", "dev", "dummy")
	ns.Run("ip", "addr", "add", "fd10::3/64", "dev", "dummy", "nodad")
	ns.Run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1") // as every node has
	addrs := []netip.Addr{netip.MustParseAddr("10.10.10.5"), netip.MustParseAddr("fd10::5")}
	send := func() {
		for _, a := range addrs {
			c, err := net.Dial("udp", netip.AddrPortFrom(a, 7777).String())
			if err == nil {
				_, err = c.Write([]byte("x"))
				_ = c.Close()
			}
			if err != nil {
				t.Errorf("send to %s: %v", a, err)
			}
		}
	}
	<-outside.Go(func() {
		for _, args := range [][]string{
			{"link", "set", "wire", "up"},
			{"addr", "add", "10.10.10.9/24", "dev", "wire"},
			{"addr", "add", "fd10::9/64", "dev", "wire", "nodad"},
			// The neighbour has not heard yet who has the addresses now.
			{"route", "add", "10.10.10.5", "via", "10.10.10.3"},
			{"route", "add", "fd10::5", "via", "fd10::3"},
		} {
			if _, err := outside.Try("ip", args...); err != nil {
				t.Error(err)
			}
		}
	})

	pods := []netip.Addr{netip.MustParseAddr("10.244.1.3"), netip.MustParseAddr("fd00:10:244:2::3")}
	link := dummy("dummy")
	link.Routes = nil
	seats := []egressip.Seat{{Addr: addrs[0], Link: link}, {Addr: addrs[1], Link: link}}
	l := &lab{t: t, ns: ns, ids: ids{}}
	l.restart(addrs...)
	for i, has := range []bool{false, true} {
		l.apply(egressip.HostPlan(seats, func(netip.Addr) bool { return has }, pods, topology.GatewayShared))
		<-outside.Go(send)
		for _, tool := range []string{"iptables-save", "ip6tables-save"} {
			netnstest.Eventually(t, tool+" to show that it was dropped", func() bool {
				return strings.Contains(ns.Run(tool, "-c", "-t", "filter"), []string{"[1:", "[2:"}[i])
			})
		}
		if tracked := connections(t); len(tracked) > 0 {
			t.Errorf("address there: %v, connections: %v", has, tracked)
		}
	}
}

// connections returns what the kernel tracks.
func connections(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			all = append(all, f.String())
		}
	}
	return all
}
