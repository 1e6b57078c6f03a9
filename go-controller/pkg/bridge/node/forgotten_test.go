package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/openflow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/snatguard"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestForgotten closes connections of pods that the gateway router has forgotten. The host answers
// with a reset towards the pod, by the management port only. It forwards nothing, with or without
// the guard, not even packets that only claim to be from a pod.
func TestForgotten(t *testing.T) {
	w := newBridge(t)
	ns := w.ns
	ns.Veth("ovn-k8s-mp0", "pods")
	ns.Run("ip", "link", "set", "ovn-k8s-mp0", "up")
	ns.Run("ip", "link", "set", "pods", "up")
	w.vs.Run("ovs-vsctl", "set", "bridge", "breth0", `other_config:hwaddr="`+at.Facts.MAC+`"`)
	eventually.True(t, "the address of the bridge", func() bool {
		return strings.Contains(ns.Run("ip", "link", "show", "breth0"), at.Facts.MAC)
	})
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.breth0.rp_filter=0",
		"net.ipv6.conf.ovn-k8s-mp0.disable_ipv6=0", "net.ipv6.conf.breth0.disable_ipv6=0", "net.ipv6.conf.all.forwarding=1")
	cases := []struct {
		family      bridge.Family
		own, remote string
		mp0, router string
		node, peer  string
		tables      string
	}{
		{families[0], "10.244.1.3", "10.244.2.3", "10.244.1.2/24", "10.244.1.1", "172.18.0.3/16", "172.18.0.100", "iptables"},
		{families[1], "fd00:10:244:2::3", "fd00:10:244:3::3", "fd00:10:244:2::2/64", "fd00:10:244:2::1", "fc00::3/64", "fc00::100", "ip6tables"},
	}
	var cluster []netip.Prefix
	for _, c := range cases {
		cluster = append(cluster, c.family.Cluster...)
		ns.Run("ip", address("addr", "add", c.mp0, "dev", "ovn-k8s-mp0")...)
		ns.Run("ip", address("addr", "add", c.node, "dev", "breth0")...)
		ns.Run("ip", "route", "add", c.family.Cluster[0].String(), "via", c.router, "dev", "ovn-k8s-mp0")
		for _, n := range []struct{ addr, dev string }{{c.router, "ovn-k8s-mp0"}, {c.own, "ovn-k8s-mp0"}, {c.peer, "breth0"}} {
			ns.Run("ip", "neigh", "replace", n.addr, "lladdr", "02:00:00:00:00:77", "nud", "permanent", "dev", n.dev)
		}
		// In OUTPUT, in this order: resets to pods, and resets that leave by another link.
		for _, dir := range [][]string{{"-o", "ovn-k8s-mp0"}, {"!", "-o", "ovn-k8s-mp0"}} {
			ns.Run(c.tables, append(append([]string{"-A", "OUTPUT"}, dir...), "-p", "tcp", "--tcp-flags", "RST", "RST")...)
		}
		ns.Run(c.tables, "-A", "FORWARD", "-p", "tcp")
		ns.Run(c.tables, "-t", "raw", "-A", "PREROUTING", "-i", "breth0", "-p", "tcp")
		ns.Run(c.tables, "-t", "mangle", "-A", "POSTROUTING", "-o", "breth0", "-p", "tcp")
	}
	counts := func(tables string) string {
		var n []string
		for _, chain := range [][]string{{"OUTPUT"}, {"FORWARD"}, {"POSTROUTING", "-t", "mangle"}, {"PREROUTING", "-t", "raw"}} {
			for line := range strings.Lines(ns.Run(tables, append([]string{"-nvxL"}, chain...)...)) {
				fields := strings.Fields(line)
				if len(fields) > 2 {
					if _, err := strconv.Atoi(fields[0]); err == nil {
						n = append(n, fields[0])
					}
				}
			}
		}
		return strings.Join(n, " ")
	}
	to := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), 80) }
	ends := func(pod, peer string) string { return packet("tcp", to(pod), to(peer), "tcp_flags=0x011") }

	guard := snatguard.New(cluster, "ovn-k8s-mp0")
	flows := openflow.New("breth0", w.vs.Dir)
	for _, guarded := range []bool{false, true} {
		if guarded {
			if err := guard.Ensure(); err != nil {
				t.Fatal(err)
			}
			ns.Run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1") // the strictest setting of a host
		}
		for _, c := range cases {
			before, sent := w.unsnatted(flows), 0
			for _, pod := range []string{c.own, c.remote} {
				for range 2 {
					if got := w.send("ovn", ends(pod, c.peer), 0); !slices.Contains(got, "host") {
						t.Errorf("the end of a connection of %s goes to %v", pod, got)
					}
					sent++
				}
			}
			want := fmt.Sprintf("0 0 0 0 %d", sent)
			if guarded {
				want = fmt.Sprintf("%d 0 0 0 %d", sent, sent)
			}
			eventually.Succeeds(t, fmt.Sprintf("%s, guard %t: %s", c.family.Family, guarded, want), func() error {
				if got := counts(c.tables); got != want {
					return fmt.Errorf("resets to pods, other resets, forwarded, by the bridge, past the guard: %s", got)
				}
				return nil
			})
			if got := w.unsnatted(flows) - before; got != uint64(sent) {
				t.Errorf("%s, guard %t: %d of %d are counted", c.family.Family, guarded, got, sent)
			}
		}
	}
	if n, err := guard.Dropped(); n != 0 || err != nil {
		t.Errorf("%d are counted by the guard as well, %v", n, err)
	}
	// Other packets with that source are neither answered nor forwarded, whatever their time to
	// live.
	const marked = "mod_dl_src:" + topology.ForgottenMAC + ",output:LOCAL"
	for _, c := range cases {
		before := strings.Fields(counts(c.tables))
		for _, p := range []string{
			packet("tcp", to(c.own), to(c.peer), "tcp_flags=0x002"), packet("tcp", to(c.own), to(c.peer), "tcp_flags=0x010"),
			packet("tcp", to(c.peer), to("203.0.113.9"), "tcp_flags=0x011"), packet("udp", to(c.own), to(c.peer)),
		} {
			if netip.MustParseAddr(c.peer).Is6() {
				p = strings.ReplaceAll(p, "203.0.113.9", "2001:db8::9")
			}
			w.out(w.ports["ovn"], p, marked)
		}
		w.out(w.ports["ovn"], ends(c.own, c.peer), marked)
		resets, err := strconv.Atoi(before[0])
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d 0 0 0 %s", resets+1, before[4]) // only the last packet is answered
		eventually.Succeeds(t, "one answer: "+want, func() error {
			if got := counts(c.tables); got != want {
				return fmt.Errorf("has %s", got)
			}
			return nil
		})
	}
}

// address adds "nodad" for an IPv6 address.
func address(args ...string) []string {
	if strings.Contains(args[2], ":") {
		args = append(args, "nodad")
	}
	return args
}

// unsnatted returns what the metric counts for the bridge.
func (w *wires) unsnatted(flows *openflow.Writer) (sum uint64) {
	w.Helper()
	packets, err := flows.Packets(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, table := range []int{0, bridge.TablePodReply} {
		sum += packets[host.FlowLevel{Table: table, Priority: bridge.PriorityUnsnatted}]
	}
	return sum
}
