package conntrack

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

var addr = netip.MustParseAddr

// entry adds a UDP entry to the kernel's table.
func entry(t *testing.T, src, dst, replySrc, replyDst string, port uint16, mark uint32) {
	t.Helper()
	family := netlink.InetFamily(netlink.FAMILY_V4)
	if addr(src).Is6() {
		family = netlink.FAMILY_V6
	}
	ip := func(s string) net.IP { return addr(s).AsSlice() } // four bytes for IPv4
	flow := &netlink.ConntrackFlow{
		FamilyType: uint8(family), TimeOut: 100, Mark: mark,
		Forward: netlink.IPTuple{SrcIP: ip(src), DstIP: ip(dst), SrcPort: 4000, DstPort: port, Protocol: 17},
		Reverse: netlink.IPTuple{SrcIP: ip(replySrc), DstIP: ip(replyDst), SrcPort: port, DstPort: 4000, Protocol: 17},
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, family, flow); err != nil {
		t.Fatalf("make an entry: %v", err)
	}
}

// left returns the source addresses of the entries that are left.
func left(t *testing.T) string {
	t.Helper()
	var out []string
	for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			out = append(out, f.Forward.SrcIP.String())
		}
	}
	return strings.Join(out, " ")
}

func TestFlushKernel(t *testing.T) {
	for _, c := range []struct {
		name   string
		filter Filter
		n      int
	}{
		{"source", Filter{Src: addr("10.244.0.5")}, 1},
		{"source, IPv6", Filter{Src: addr("fd00::5")}, 1},
		{"destination and port", Filter{Dst: addr("192.0.2.1"), Protocol: 17, DstPort: 53}, 2},
		{"another port", Filter{Dst: addr("192.0.2.1"), Protocol: 17, DstPort: 54}, 0},
		{"another protocol", Filter{Dst: addr("192.0.2.1"), Protocol: 6}, 0},
		{"translated source", Filter{ReplyDst: addr("5.5.5.5")}, 1},
		{"endpoint", Filter{ReplySrc: addr("192.0.2.1")}, 2},
		{"mark of both families", Filter{Mark: 2}, 2},
		{"all of it must match", Filter{Src: addr("10.244.0.5"), Mark: 2}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			netnstest.New(t)
			entry(t, "10.244.0.5", "192.0.2.1", "192.0.2.1", "5.5.5.5", 53, 1)
			entry(t, "10.244.0.6", "192.0.2.1", "192.0.2.1", "10.244.0.6", 53, 2)
			entry(t, "fd00::5", "2001:db8::1", "2001:db8::1", "fd00::5", 53, 2)
			n, err := FlushKernel(t.Context(), c.filter)
			if err != nil || n != c.n {
				t.Errorf("%d entries deleted, want %d (%v); left: %s", n, c.n, err, left(t))
			}
			if got := len(strings.Fields(left(t))); got != 3-c.n {
				t.Errorf("left: %s", left(t))
			}
		})
	}
}

func TestFlushKernelAddrs(t *testing.T) {
	netnstest.New(t)
	entry(t, "10.244.0.5", "192.0.2.1", "192.0.2.1", "5.5.5.5", 53, 1)
	entry(t, "192.0.2.1", "5.5.5.5", "5.5.5.5", "192.0.2.1", 54, 1)
	entry(t, "10.244.0.6", "192.0.2.1", "192.0.2.1", "10.244.0.6", 53, 2)
	entry(t, "fd00::5", "2001:db8::1", "2001:db8::1", "fd00::5", 53, 2)
	if n, err := FlushKernelAddrs(t.Context(), []netip.Addr{addr("5.5.5.5"), addr("6.6.6.6")}); err != nil || n != 2 {
		t.Errorf("%d entries deleted (%v); left: %s", n, err, left(t))
	}
	if n, err := FlushKernelAddrs(t.Context(), []netip.Addr{addr("fd00::5")}); err != nil || n != 1 || left(t) != "10.244.0.6" {
		t.Errorf("%d entries deleted (%v); left: %s", n, err, left(t))
	}
}

func TestRefused(t *testing.T) {
	for name, f := range map[string]Filter{
		"everything":      {},
		"port only":       {DstPort: 53},
		"of two families": {Src: addr("10.0.0.1"), Dst: addr("fd00::1")},
	} {
		if _, err := FlushKernel(t.Context(), f); err == nil {
			t.Errorf("%s was accepted by the kernel's", name)
		}
		if err := FlushOVS(t.Context(), t.TempDir(), 0, f); err == nil || strings.Contains(err.Error(), "ovs-vswitchd") {
			t.Errorf("%s was not refused by that of OVS: %v", name, err)
		}
	}
	if err := FlushOVS(t.Context(), t.TempDir(), 0, Filter{Mark: 1}); err == nil || strings.Contains(err.Error(), "ovs-vswitchd") {
		t.Errorf("a mark was not refused: %v", err)
	}
}

// TestFlushOVS creates entries in the userspace datapath by injecting packets, and flushes some.
func TestFlushOVS(t *testing.T) {
	o := netnstest.New(t).OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	o.Run("ovs-ofctl", "add-flow", mgmt, "ip,actions=ct(commit,zone=64000)")
	o.Run("ovs-ofctl", "add-flow", mgmt, "ipv6,actions=ct(commit,zone=64001)")
	send := func(match string) {
		t.Helper()
		dump := o.Run("ovs-ofctl", "compose-packet",
			match+",eth_src=02:00:00:00:00:01,eth_dst=02:00:00:00:00:02,nw_ttl=64,udp_src=4000,udp_dst=53")
		packet := ""
		for line := range strings.Lines(dump) { // "00000010  00 5c 00 00 00 00 40 11-ad 97 ..."
			_, bytes, _ := strings.Cut(strings.TrimSpace(line), "  ")
			packet += strings.NewReplacer(" ", "", "-", "").Replace(bytes)
		}
		o.Run("ovs-ofctl", "packet-out", mgmt, "in_port=LOCAL packet="+packet+" actions=table")
	}
	fill := func() {
		send("udp,nw_src=10.244.0.5,nw_dst=192.0.2.1")
		send("udp,nw_src=10.244.0.6,nw_dst=192.0.2.1")
		send("udp6,ipv6_src=fd00::5,ipv6_dst=2001:db8::1")
	}
	entries := func() int {
		return strings.Count(o.Run("ovs-appctl", "dpctl/dump-conntrack"), "udp,")
	}
	for _, c := range []struct {
		name   string
		zone   uint16
		filter Filter
		left   int
	}{
		{"source", 64000, Filter{Src: addr("10.244.0.5")}, 2},
		{"another zone", 64001, Filter{Src: addr("10.244.0.5")}, 3},
		{"all zones", 0, Filter{Src: addr("fd00::5")}, 2},
		{"destination and port", 64000, Filter{Dst: addr("192.0.2.1"), Protocol: 17, DstPort: 53}, 1},
		{"another port", 64000, Filter{Dst: addr("192.0.2.1"), Protocol: 17, DstPort: 54}, 3},
		{"reply", 0, Filter{Src: addr("10.244.0.6"), ReplySrc: addr("192.0.2.1")}, 2},
		{"reply only", 0, Filter{ReplyDst: addr("10.244.0.6")}, 2},
	} {
		fill()
		if n := entries(); n != 3 {
			t.Fatalf("%s: %d entries at the beginning", c.name, n)
		}
		if err := FlushOVS(t.Context(), o.Dir, c.zone, c.filter); err != nil {
			t.Fatal(err)
		}
		if n := entries(); n != c.left {
			t.Errorf("%s: %d entries left, want %d:\n%s", c.name, n, c.left, o.Run("ovs-appctl", "dpctl/dump-conntrack"))
		}
	}
}
