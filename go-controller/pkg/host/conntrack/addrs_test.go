package conntrack

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestFlushOVSAddrs checks that connections to addresses and connections translated to them are
// deleted, of every protocol and zone, and nothing else.
func TestFlushOVSAddrs(t *testing.T) {
	o := netnstest.New(t).OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	for _, rule := range []string{
		"priority=2,ip,nw_src=10.244.1.3,actions=ct(commit,zone=7,nat(src=172.18.0.33))",
		"priority=2,ipv6,ipv6_src=fd00:1::3,actions=ct(commit,zone=7,nat(src=fc00::33))",
		"priority=1,ip,actions=ct(commit,zone=8)",
		"priority=1,ipv6,actions=ct(commit,zone=8)",
	} {
		o.Run("ovs-ofctl", "add-flow", mgmt, rule)
	}
	for _, match := range []string{
		"udp,nw_src=10.244.1.3,nw_dst=192.0.2.1,udp_src=4000,udp_dst=80",
		"tcp,nw_src=10.244.1.3,nw_dst=192.0.2.1,tcp_src=4000,tcp_dst=80,tcp_flags=syn",
		"icmp,nw_src=10.244.1.3,nw_dst=192.0.2.1,icmp_type=8,icmp_code=0",
		"tcp6,ipv6_src=fd00:1::3,ipv6_dst=fd02::1,tcp_src=4000,tcp_dst=80,tcp_flags=syn",
		"udp,nw_src=192.0.2.1,nw_dst=172.18.0.44,udp_src=4000,udp_dst=80",
		"udp,nw_src=192.0.2.1,nw_dst=172.18.0.55,udp_src=4000,udp_dst=80",
		"udp6,ipv6_src=fd02::1,ipv6_dst=fc00::55,udp_src=4000,udp_dst=80",
	} {
		inject(o, mgmt, match)
	}
	if n := strings.Count(o.Run("ovs-appctl", "dpctl/dump-conntrack"), "orig="); n != 7 {
		t.Fatalf("%d entries at the beginning:\n%s", n, o.Run("ovs-appctl", "dpctl/dump-conntrack"))
	}
	n, err := FlushOVSAddrs(t.Context(), o.Dir, []netip.Addr{addr("172.18.0.33"), addr("fc00::33"), addr("172.18.0.44"), addr("172.18.0.66")})
	if err != nil || n != 5 {
		t.Errorf("%d entries, want 5 (%v)", n, err)
	}
	var left []string
	for line := range strings.Lines(o.Run("ovs-appctl", "dpctl/dump-conntrack")) {
		if e, ok := parseEntry(strings.TrimSpace(line)); ok {
			left = append(left, e.orig.dst.String())
		}
	}
	slices.Sort(left)
	if !slices.Equal(left, []string{"172.18.0.55", "fc00::55"}) {
		t.Errorf("left are entries to %v", left)
	}
	// Entries of those who opened connections in a zone are deleted, all at once, and no others.
	gone := []netip.Addr{addr("192.0.2.1"), addr("fd02::1"), addr("192.0.2.9")}
	for _, c := range []struct {
		zone uint16
		from []netip.Addr
		left int
	}{{9, gone, 2}, {8, gone[1:], 1}, {8, nil, 1}, {8, gone, 0}} {
		if err := FlushOVSSources(t.Context(), o.Dir, c.zone, c.from); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(o.Run("ovs-appctl", "dpctl/dump-conntrack"), "orig="); n != c.left {
			t.Errorf("%d entries are left in zone %d without %v, want %d", n, c.zone, c.from, c.left)
		}
	}
	o.StopVswitchd()
	if _, err := FlushOVSAddrs(t.Context(), o.Dir, []netip.Addr{addr("172.18.0.33")}); err == nil {
		t.Error("nobody was there to ask")
	}
	if err := FlushOVSSources(t.Context(), o.Dir, 8, gone); err == nil {
		t.Error("nobody was there to ask who opened connections")
	}
}
