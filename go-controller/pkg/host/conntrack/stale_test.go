package conntrack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
)

func TestParseUDP(t *testing.T) {
	for line, want := range map[string]string{
		"udp,orig=(src=10.244.1.4,dst=10.96.0.9,sport=20000,dport=80),reply=(src=10.244.2.3,dst=10.244.1.4,sport=8080,dport=20000),zone=9,mark=2":          "10.244.1.4 10.96.0.9:80 10.244.2.3:8080 9 ct_nw_src=10.244.1.4,ct_nw_dst=10.96.0.9,ct_nw_proto=17,ct_tp_src=20000,ct_tp_dst=80",
		"udp,orig=(src=fd00::4,dst=fd00:96::9,sport=20000,dport=80),reply=(src=fd00:2::3,dst=fd00::4,sport=8080,dport=20000),zone=64000,labels=0x2":        "fd00::4 [fd00:96::9]:80 [fd00:2::3]:8080 64000 ct_ipv6_src=fd00::4,ct_ipv6_dst=fd00:96::9,ct_nw_proto=17,ct_tp_src=20000,ct_tp_dst=80",
		"udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(src=10.0.0.2,dst=10.0.0.1,sport=2,dport=1)":                                           "10.0.0.1 10.0.0.2:2 10.0.0.2:2 0 ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2",
		"tcp,orig=(src=1.1.1.1,dst=2.2.2.2,sport=1,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1),zone=64000,mark=1,protoinfo=(state=TIME_WAIT)": "",
		"udp,orig=(src=x,dst=y,sport=1,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1)":                                                           "", "udp,": "", "udp,orig=(": "", "": "",
	} {
		got := ""
		if e, ok := parseUDP(line); ok {
			got = fmt.Sprintf("%s %s %s %d %s", e.client, e.to, e.from, e.zone, e.tuple)
		}
		if got != want {
			t.Errorf("%q:\n got %q\nwant %q", line, got, want)
		}
	}
}

func FuzzParseUDP(f *testing.F) {
	f.Add("udp,orig=(src=1.1.1.1,dst=2.2.2.2,sport=1,dport=2),reply=(src=2.2.2.2,dst=1.1.1.1,sport=2,dport=1),zone=6")
	f.Fuzz(func(t *testing.T, line string) {
		if e, ok := parseUDP(line); ok && (!e.to.IsValid() || !e.from.IsValid() || e.tuple == "") {
			t.Errorf("%q: %+v", line, e)
		}
	})
}

// TestFlushStaleUDP: entries go from the kernel and from the datapath, those that
// still lead somewhere stay, and so does what is not UDP.
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
		dump := o.Run("ovs-ofctl", "compose-packet", match+",eth_src=02:00:00:00:00:01,eth_dst=02:00:00:00:00:02,nw_ttl=64")
		packet := ""
		for line := range strings.Lines(dump) {
			_, bytes, _ := strings.Cut(strings.TrimSpace(line), "  ")
			packet += strings.NewReplacer(" ", "", "-", "").Replace(bytes)
		}
		o.Run("ovs-ofctl", "packet-out", mgmt, "in_port=LOCAL packet="+packet+" actions=table")
	}
	entry(t, "192.0.2.1", "10.96.0.9", "10.244.1.3", "192.0.2.1", 80, 0)
	entry(t, "192.0.2.2", "10.96.0.9", "10.244.1.4", "192.0.2.2", 80, 0)

	gone := map[netip.Addr]bool{addr("10.244.1.3"): true, addr("fd00:1::3"): true}
	n, err := FlushStaleUDP(t.Context(), o.Dir, func(_ netip.Addr, to, from netip.AddrPort, own bool) bool {
		return to.Port() == 80 && gone[from.Addr()]
	})
	if err != nil || n != 3 {
		t.Errorf("%d entries, want 3 (%v)", n, err)
	}
	if got := left(t); got != "192.0.2.2" {
		t.Errorf("left in the kernel: %s", got)
	}
	dump := o.Run("ovs-appctl", "dpctl/dump-conntrack")
	if strings.Count(dump, "udp,") != 1 || !strings.Contains(dump, "10.244.1.4") || !strings.Contains(dump, "tcp,") {
		t.Errorf("left in the datapath:\n%s", dump)
	}

	// The kernel's go all the same where there is nobody to ask.
	o.StopVswitchd()
	entry(t, "192.0.2.1", "10.96.0.9", "10.244.1.3", "192.0.2.1", 80, 0)
	if n, err := FlushStaleUDP(t.Context(), o.Dir, func(_ netip.Addr, _, from netip.AddrPort, _ bool) bool { return gone[from.Addr()] }); err == nil || n != 1 {
		t.Errorf("without ovs-vswitchd: %d entries, %v", n, err)
	}
}
