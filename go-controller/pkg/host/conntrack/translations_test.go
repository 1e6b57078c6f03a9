package conntrack

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/unixctl"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestFlushGatewayTranslations checks that stale translations in zone 0 are deleted, of every
// protocol, and nothing else.
func TestFlushGatewayTranslations(t *testing.T) {
	o := netnstest.New(t).OVS()
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	for _, rule := range []string{
		"priority=3,ip,nw_src=10.244.1.3,actions=ct(commit,zone=0,nat(src=172.18.0.33)),ct(commit,zone=7)",
		"priority=3,ipv6,ipv6_src=fd00:1::3,actions=ct(commit,zone=0,nat(src=fc00::33))",
		"priority=3,ip,nw_src=10.244.1.4,actions=ct(commit,zone=7,nat(src=172.18.0.33))",
		"priority=1,ip,actions=ct(commit,zone=0)",
	} {
		o.Run("ovs-ofctl", "add-flow", mgmt, rule)
	}
	for _, match := range []string{
		"udp,nw_src=10.244.1.3,nw_dst=192.0.2.1,udp_src=4000,udp_dst=80",
		"tcp,nw_src=10.244.1.3,nw_dst=192.0.2.1,tcp_src=4000,tcp_dst=80,tcp_flags=syn",
		"icmp,nw_src=10.244.1.3,nw_dst=192.0.2.1,icmp_type=8,icmp_code=0",
		"tcp,nw_src=10.244.1.3,nw_dst=192.0.2.2,tcp_src=4000,tcp_dst=80,tcp_flags=syn",
		"tcp6,ipv6_src=fd00:1::3,ipv6_dst=fd02::1,tcp_src=4000,tcp_dst=80,tcp_flags=syn",
		"udp,nw_src=10.244.1.4,nw_dst=192.0.2.1,udp_src=4000,udp_dst=80",
		"udp,nw_src=10.244.1.5,nw_dst=192.0.2.1,udp_src=4000,udp_dst=80",
	} {
		inject(o, mgmt, match)
	}
	entries := func(in int) []string {
		var all []string
		for line := range strings.Lines(o.Run("ovs-appctl", "dpctl/dump-conntrack")) {
			if e, ok := parseEntry(strings.TrimSpace(line)); ok && int(e.zone) == in {
				all = append(all, e.protocol+" "+e.orig.src.String()+" "+e.orig.dst.String())
			}
		}
		slices.Sort(all)
		return all
	}
	others := entries(7)
	if n := len(entries(0)); n != 6 {
		t.Fatalf("%d entries at the beginning: %q", n, entries(0))
	}
	n, err := FlushGatewayTranslations(t.Context(), o.Dir, func() func(src, dst, to netip.Addr) bool {
		return func(_, dst, to netip.Addr) bool {
			return dst != addr("192.0.2.2") && (to == addr("172.18.0.33") || to == addr("fc00::33"))
		}
	})
	if err != nil || n != 4 {
		t.Errorf("%d entries, want 4 (%v)", n, err)
	}
	if _, err := (datapath{unixctl.Daemon{RunDir: o.Dir, Name: "ovs-vswitchd"}, "netdev@ovs-netdev"}).flushEntries(t.Context(), []datapathEntry{{
		protocol: "udp", orig: direction{addr("10.244.1.3"), addr("192.0.2.1"), 4000, 80}}}); err != nil {
		t.Errorf("an entry that has gone meanwhile: %v", err)
	}
	if got, want := entries(0), []string{"tcp 10.244.1.3 192.0.2.2", "udp 10.244.1.5 192.0.2.1"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	// Entries of a protocol without ports are deleted by their addresses, in all zones.
	others = slices.DeleteFunc(others, func(e string) bool { return strings.HasPrefix(e, "icmp") })
	if got := slices.DeleteFunc(entries(7), func(e string) bool { return strings.HasPrefix(e, "icmp") }); !slices.Equal(got, others) {
		t.Errorf("in another zone are %q, want %q", got, others)
	}
	o.StopVswitchd()
	if _, err := FlushGatewayTranslations(t.Context(), o.Dir, func() func(src, dst, to netip.Addr) bool {
		t.Error("what is stale was decided before the wait for flows")
		return func(_, _, _ netip.Addr) bool { return true }
	}); err == nil {
		t.Error("nobody was there to ask")
	}
}

// inject sends a packet into a bridge as if it came from the host.
func inject(o *netnstest.OVS, mgmt, match string) {
	packet := ""
	for line := range strings.Lines(o.Run("ovs-ofctl", "compose-packet", match+",eth_src=02:00:00:00:00:01,eth_dst=02:00:00:00:00:02,nw_ttl=64")) {
		_, bytes, _ := strings.Cut(strings.TrimSpace(line), "  ")
		packet += strings.NewReplacer(" ", "", "-", "").Replace(bytes)
	}
	o.Run("ovs-ofctl", "packet-out", mgmt, "in_port=LOCAL packet="+packet+" actions=table")
}

// TestFlushKernelTranslations does the same for the kernel datapath, whose entries are in the
// kernel's table.
func TestFlushKernelTranslations(t *testing.T) {
	netnstest.New(t)
	entry(t, "10.244.1.3", "192.0.2.1", "192.0.2.1", "172.18.0.33", 80, 0)
	entry(t, "fd00:1::3", "fd02::1", "fd02::1", "fc00::33", 80, 0)
	entry(t, "10.244.1.4", "192.0.2.2", "192.0.2.2", "172.18.0.33", 80, 0)
	entry(t, "10.244.1.5", "192.0.2.1", "192.0.2.1", "10.244.1.5", 80, 0)
	n, err := flushKernelTranslations(func(_, dst, _ netip.Addr) bool { return dst != addr("192.0.2.2") })
	if err != nil || n != 2 || left(t) != "10.244.1.5 10.244.1.4" && left(t) != "10.244.1.4 10.244.1.5" {
		t.Errorf("%d entries deleted, want 2 (%v); left: %s", n, err, left(t))
	}
}
