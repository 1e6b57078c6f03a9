package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

// TestFollow finds the translations of one connection in the kernel and in Open vSwitch, one after
// the other, and none of other connections.
func TestFollow(t *testing.T) {
	o := netnstest.New(t).OVS()
	entry(t, "10.244.1.3", "192.0.2.1", "192.0.2.1", "172.18.0.33", 443, 0)
	entry(t, "10.244.1.4", "192.0.2.1", "192.0.2.1", "172.18.0.44", 443, 0)
	entry(t, "10.244.1.3", "192.0.2.1", "192.0.2.1", "172.18.0.55", 80, 0)
	entry(t, "10.244.1.5", "10.96.0.9", "10.244.2.3", "10.244.1.5", 443, 0)
	entry(t, "fd00:1::3", "2001:db8::1", "2001:db8::1", "fc00::33", 443, 0)
	o.Run("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	mgmt := "unix:" + o.Dir + "/br0.mgmt"
	for _, rule := range []string{
		"priority=2,ip,nw_src=172.18.0.33,actions=ct(commit,zone=64000)",
		"priority=2,ip,nw_src=10.244.1.6,actions=ct(commit,zone=7,nat(src=172.18.0.66))",
		"priority=2,ipv6,ipv6_src=fc00::33,actions=ct(commit,zone=64000)",
	} {
		o.Run("ovs-ofctl", "add-flow", mgmt, rule)
	}
	for _, match := range []string{
		"udp,nw_src=172.18.0.33,nw_dst=192.0.2.1,udp_src=4000,udp_dst=443",
		"udp,nw_src=172.18.0.33,nw_dst=192.0.2.1,udp_src=4001,udp_dst=443",
		"tcp,nw_src=172.18.0.33,nw_dst=192.0.2.1,tcp_src=4000,tcp_dst=443,tcp_flags=syn",
		"tcp,nw_src=10.244.1.6,nw_dst=192.0.2.1,tcp_src=4000,tcp_dst=443,tcp_flags=syn",
		"udp6,ipv6_src=fc00::33,ipv6_dst=2001:db8::1,udp_src=4000,udp_dst=443",
	} {
		packet := ""
		for line := range strings.Lines(o.Run("ovs-ofctl", "compose-packet", match+",eth_src=02:00:00:00:00:01,eth_dst=02:00:00:00:00:02,nw_ttl=64")) {
			_, bytes, _ := strings.Cut(strings.TrimSpace(line), "  ")
			packet += strings.NewReplacer(" ", "", "-", "").Replace(bytes)
		}
		o.Run("ovs-ofctl", "packet-out", mgmt, "in_port=LOCAL packet="+packet+" actions=table")
	}
	for _, tc := range []struct {
		protocol uint8
		from, to string
		want     []string
	}{
		{17, "10.244.1.3:4000", "192.0.2.1:443", []string{"true 0 10.244.1.3:4000 172.18.0.33:4000", "false 64000 172.18.0.33:4000 172.18.0.33:4000"}},
		{17, "[fd00:1::3]:4000", "[2001:db8::1]:443", []string{"true 0 [fd00:1::3]:4000 [fc00::33]:4000", "false 64000 [fc00::33]:4000 [fc00::33]:4000"}},
		{6, "10.244.1.6:4000", "192.0.2.1:443", []string{"false 7 10.244.1.6:4000 172.18.0.66:4000"}},
		{17, "10.244.1.5:4000", "10.96.0.9:443", []string{"true 0 10.244.1.5:4000 10.244.1.5:4000"}},
		{17, "10.244.1.3:4001", "192.0.2.1:443", nil},
		{6, "10.244.1.3:4000", "192.0.2.1:443", nil},
	} {
		got, err := Follow(t.Context(), o.Dir, Connection{tc.protocol, netip.MustParseAddrPort(tc.from), netip.MustParseAddrPort(tc.to)})
		if err != nil || !slices.Equal(texts(got), tc.want) {
			t.Errorf("%d from %s to %s: %q, %v; want %q", tc.protocol, tc.from, tc.to, texts(got), err, tc.want)
		}
	}
	o.StopVswitchd()
	if _, err := Follow(t.Context(), o.Dir, Connection{17, netip.MustParseAddrPort("10.244.1.3:4000"), netip.MustParseAddrPort("192.0.2.1:443")}); err == nil {
		t.Error("nobody was there to ask")
	}
}

func texts(all []Tracked) []string {
	var out []string
	for _, e := range all {
		out = append(out, fmt.Sprint(e.Kernel, e.Zone, e.From, e.Becomes))
	}
	return out
}

// TestFollowEnds: entries that lead back to where they came from are followed once, and there is a
// limit.
func TestFollowEnds(t *testing.T) {
	at := func(src string, port uint16) direction { return direction{addr(src), addr("192.0.2.1"), port, 443} }
	back := func(src string, port uint16) direction { return direction{addr("192.0.2.1"), addr(src), 443, port} }
	c := Connection{6, netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("192.0.2.1:443")}
	loop := []tracked{{true, 0, at("10.0.0.1", 1), back("10.0.0.2", 2)}, {true, 0, at("10.0.0.2", 2), back("10.0.0.1", 1)}}
	if got := follow(loop, c); len(got) != 2 {
		t.Errorf("a loop: %q", texts(got))
	}
	var many []tracked
	for zone := range uint16(100) {
		many = append(many, tracked{false, zone, at("10.0.0.1", 1), back("10.0.0.1", 1)})
	}
	if got := follow(many, c); len(got) != mostTracked {
		t.Errorf("%d of %d entries", len(got), len(many))
	}
}
