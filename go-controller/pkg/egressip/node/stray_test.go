package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestStray: packets to an address for which this host is prepared, before it has
// it and afterwards, leave no trace. A connection of the host itself would take the
// port from the pod's connection. The previous holder gets a copy, unless it may have handed the packet on itself.
func TestStray(t *testing.T) {
	outside := netnstest.New(t)
	ns := netnstest.New(t) // this goroutine stays in this namespace
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
	tools := []string{"iptables", "ip6tables"}
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
			// The neighbour does not know yet which node has the addresses now.
			{"route", "add", "10.10.10.5", "via", "10.10.10.3"},
			{"route", "add", "fd10::5", "via", "fd10::3"},
		} {
			if _, err := outside.Try("ip", args...); err != nil {
				t.Error(err)
			}
		}
		for i, tool := range tools {
			if _, err := outside.Try(tool, "-t", "mangle", "-A", "PREROUTING", "-d", addrs[i].String()); err != nil {
				t.Error(err)
			}
		}
	})

	pods := []netip.Addr{netip.MustParseAddr("10.244.1.3"), netip.MustParseAddr("fd00:10:244:2::3")}
	link := dummy("dummy")
	link.Routes = nil
	l := &lab{t: t, ns: ns, ids: ids{}}
	l.restart(addrs...)
	for i, c := range []struct{ has, before, handedOn bool }{{}, {has: true}, {has: true, before: true}, {has: true, before: true, handedOn: true}} {
		seats := []egressip.LinkAssignment{{Addr: addrs[0], Link: link}, {Addr: addrs[1], Link: link}}
		if c.before { // it is the same machine here
			seats[0].Before, seats[1].Before = netip.MustParseAddr("10.10.10.9"), netip.MustParseAddr("fd10::9")
		}
		l.apply(egressip.HostPlan(seats, func(netip.Addr) bool { return c.has }, pods))
		if c.handedOn {
			<-outside.Go(func() {
				if _, err := outside.Try("sysctl", "-qw", "net.ipv4.ip_default_ttl=7", "net.ipv6.conf.wire.hop_limit=7"); err != nil {
					t.Error(err)
				}
			})
		}
		<-outside.Go(send)
		for _, tool := range tools {
			eventually.True(t, tool+" to show that it was dropped", func() bool {
				return strings.Contains(ns.Run(tool+"-save", "-c", "-t", "filter"), fmt.Sprintf("[%d:", i+1))
			})
			copies := func(n int) (yes bool) {
				<-outside.Go(func() {
					rules, err := outside.Try(tool+"-save", "-c", "-t", "mangle")
					yes = err == nil && strings.Contains(rules, fmt.Sprintf("\n[%d:", n))
				})
				return yes
			}
			if c.before {
				eventually.True(t, tool+" to show one copy", func() bool { return copies(1) })
			} else if !copies(0) {
				t.Error("a copy was sent")
			}
		}
		if tracked := connections(t); len(tracked) > 0 {
			t.Errorf("%+v, connections: %v", c, tracked)
		}
	}
}

// TestNoHandOn: a kernel that cannot forward connections gets everything else.
func TestNoHandOn(t *testing.T) {
	ns := netnstest.New(t)
	l := &lab{t: t, ns: ns, ids: ids{}}
	l.restart()
	c := &Controller{deps: Deps{Kernel: l.kernel}}
	c.forwardReleased(t.Context(), "prod", nil, host.Rules{
		{Family: topology.IPv4, Table: "mangle", Name: egressip.ChainHandOn}: {"-j NO-SUCH-TARGET"},
	})
	mark := host.ChainKey{Family: topology.IPv4, Table: "mangle", Name: egressip.ChainMark}
	if err := l.kernel.Chains.Apply(t.Context(), "another", host.Rules{mark: {"-j RETURN"}}); err != nil {
		t.Error(err)
	}
	if got := ns.Run("iptables-save", "-t", "mangle"); !strings.Contains(got, "-A "+egressip.ChainMark+" -j RETURN") {
		t.Errorf("has\n%s", got)
	}
}

// TestHandOnRefused: a kernel that cannot forward connections is not asked again at each move of an address.
func TestHandOnRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		chains := hostfake.NewChains(egressip.Chains(topology.Families))
		chains.Fail = func(contributor string) error {
			asked = append(asked, contributor)
			if len(asked) == 1 {
				return errors.New("no such target")
			}
			return nil
		}
		c := &Controller{deps: Deps{Kernel: Kernel{Chains: chains}}}
		copies := func(key string) bool {
			seat := egressip.LinkAssignment{Addr: netip.MustParseAddr("10.10.10.5"), Link: dummy("dummy"), Before: netip.MustParseAddr("10.10.10.4")}
			next := egressip.HostPlan([]egressip.LinkAssignment{seat}, func(netip.Addr) bool { return true }, nil)
			c.forwardReleased(t.Context(), key, nil, next.HandOn)
			written := strings.Contains(chains.Dump(topology.IPv4), "-j TEE")
			c.forwardReleased(t.Context(), key, next.HandOn, nil)
			return written
		}
		if copies("prod") || copies("shop") {
			t.Errorf("written although it was refused: %q", asked)
		}
		<-time.After(host.OptionalRetry)
		if !copies("prod") {
			t.Errorf("not tried again: %q", asked)
		}
	})
}

// connections returns the connections tracked by the kernel.
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
