package conntrack

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestFlushStaleUDP: stale entries are deleted from the kernel and from the datapath; those that
// still lead somewhere and those that are not UDP stay.
func TestFlushStaleUDP(t *testing.T) {
	o := netnstest.New(t).OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	for _, rule := range []string{
		"udp,nw_src=192.0.2.1,actions=ct(commit,zone=7,nat(dst=10.244.1.3:8080))",
		"udp,nw_src=192.0.2.2,actions=ct(commit,zone=8,nat(dst=10.244.1.4:8080))",
		"tcp,actions=ct(commit,zone=7)",
		"udp6,actions=ct(commit,zone=7,nat(dst=[fd00:1::3]:8080))",
	} {
		o.Run("ovs-ofctl", "add-flow", mgmt, rule)
	}
	for _, match := range []string{
		"udp,nw_src=192.0.2.1,nw_dst=10.96.0.9,udp_src=4000,udp_dst=80", "udp,nw_src=192.0.2.2,nw_dst=10.96.0.9,udp_src=4000,udp_dst=80",
		"tcp,nw_src=192.0.2.1,nw_dst=10.96.0.9,tcp_src=4000,tcp_dst=80,tcp_flags=syn", "udp6,ipv6_src=fd02::1,ipv6_dst=fd00:96::9,udp_src=4000,udp_dst=80",
	} {
		inject(o, mgmt, match)
	}
	entry(t, "192.0.2.1", "10.96.0.9", "10.244.1.3", "192.0.2.1", 80, 0)
	entry(t, "192.0.2.2", "10.96.0.9", "10.244.1.4", "192.0.2.2", 80, 0)

	gone := map[netip.Addr]bool{addr("10.244.1.3"): true, addr("fd00:1::3"): true}
	zones := map[uint16]bool{}
	n, err := FlushStaleUDP(t.Context(), o.Dir, func() Stale {
		return func(_ netip.Addr, to, from netip.AddrPort, zone uint16) bool {
			zones[zone] = true
			return to.Port() == 80 && gone[from.Addr()]
		}
	})
	if err != nil || n != 3 {
		t.Errorf("%d entries, want 3 (%v)", n, err)
	}
	if !maps.Equal(zones, map[uint16]bool{0: true, 7: true, 8: true}) {
		t.Errorf("entries of zones %v", zones)
	}
	if got := left(t); got != "192.0.2.2" {
		t.Errorf("left in the kernel: %s", got)
	}
	dump := o.Run("ovs-appctl", "dpctl/dump-conntrack")
	if strings.Count(dump, "udp,") != 1 || !strings.Contains(dump, "10.244.1.4") || !strings.Contains(dump, "tcp,") {
		t.Errorf("left in the datapath:\n%s", dump)
	}

	// The kernel's entries are deleted even if ovs-vswitchd does not run.
	o.StopVswitchd()
	entry(t, "192.0.2.1", "10.96.0.9", "10.244.1.3", "192.0.2.1", 80, 0)
	if n, err := FlushStaleUDP(t.Context(), o.Dir, func() Stale {
		return func(_ netip.Addr, _, from netip.AddrPort, _ uint16) bool { return gone[from.Addr()] }
	}); err == nil || n != 1 {
		t.Errorf("without ovs-vswitchd: %d entries, %v", n, err)
	}
}
