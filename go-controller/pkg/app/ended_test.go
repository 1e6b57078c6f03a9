package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/reserved"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestEndedWhileDown: connections of pods that an EgressService, or an EgressIP on a secondary
// network, no longer selects when a node restarts are deleted, and no others.
func TestEndedWhileDown(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth1", "x-eth1")
	a := netip.MustParseAddr
	// By family: a pod that is still selected, one that is not, one of the EgressIP, and one that
	// is not ours.
	families := [][4]netip.Addr{
		{a("10.244.1.3"), a("10.244.1.4"), a("10.244.1.5"), a("10.244.1.6")},
		{a("fd00:10:244:2::3"), a("fd00:10:244:2::4"), a("fd00:10:244:2::5"), a("fd00:10:244:2::6")},
	}
	services, egressIPs, others := []netip.Addr{a("5.5.5.5"), a("fd55::5")}, []netip.Addr{a("10.10.10.5"), a("fd10::5")}, []netip.Addr{a("172.18.0.3"), a("fc00::3")}
	newRun := func() *iptables.Writer {
		w, err := iptables.New(chainsOf(topology.Families))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	serve := func(w *iptables.Writer, pods int) {
		t.Helper()
		all := egressservice.Translations{}
		for i, f := range families {
			for _, pod := range f[:pods] {
				all[pod] = services[i]
			}
		}
		if err := w.Apply(t.Context(), egressservice.Contributor("shop/checkout"), all.Rules("shop/checkout")); err != nil {
			t.Fatal(err)
		}
	}
	before := newRun()
	serve(before, 2)
	link := host.Network{Link: "eth1", Index: 77}
	plan := egressip.HostPlan([]egressip.LinkAssignment{{Addr: egressIPs[0], Link: link}, {Addr: egressIPs[1], Link: link}},
		func(netip.Addr) bool { return true }, []netip.Addr{families[0][2], families[1][2]})
	if err := before.Apply(t.Context(), egressip.Contributor("prod"), plan.Rules); err != nil {
		t.Fatal(err)
	}
	for i, f := range families {
		for pod, to := range map[netip.Addr]netip.Addr{f[0]: services[i], f[1]: services[i], f[2]: egressIPs[i], f[3]: others[i]} {
			connect(t, pod, outside(pod), to)
		}
	}

	after := newRun()
	var flushed [][]netip.Addr
	fail := errors.New("busy")
	e := &endedTranslations{read: translationsOf(topology.Families), flush: func(ctx context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error {
		if fail != nil {
			return fail
		}
		slices.SortFunc(ended, netip.Addr.Compare)
		flushed = append(flushed, ended)
		_, err := conntrack.FlushTranslated(ctx, topology.Families, leaving(stale, nil, nil, reserved.Ranges{}))
		return err
	}}
	e.note(t.Context())
	serve(after, 1)
	// It does not matter that another kind of object cannot be repaired.
	d := hostWriters{guard: func() {}, trim: func(context.Context) error { return nil },
		swept: map[string]sweeper{chains: translatingChains{after, e}, routes: &failing{}}}
	if err := d.resync(t.Context()); !errors.Is(err, fail) {
		t.Fatalf("error %v", err)
	}
	fail = nil
	for range 2 {
		if err := d.resync(t.Context()); err == nil || strings.Contains(err.Error(), chains) {
			t.Fatalf("error %v", err)
		}
	}
	want := []netip.Addr{families[0][0], families[0][3], families[1][0], families[1][3]}
	if got := connected(t); !slices.Equal(got, want) {
		t.Errorf("connections of %v are left, want %v", got, want)
	}
	// The bridge keeps other connections of the pods.
	if len(flushed) != 1 || !slices.Equal(flushed[0], egressIPs) {
		t.Errorf("the bridge forgot %v", flushed)
	}
}

// TestFlushKeepsConnectionsToHosts: a pod calls hosts, and what it reaches through its own node, with an address of that node. Such a
// connection is not one that keeps a former egress address, even if a pod answers it, at a host port, or a Service, at a node port.
func TestFlushKeepsConnectionsToHosts(t *testing.T) {
	netnstest.New(t)
	a := netip.MustParseAddr
	hosts, nodeLocal := []netip.Addr{a("172.18.0.4"), a("fc00::4")}, []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd00:ec2::/64")}
	ranges := reserved.Ranges{Pods: prefixesOf("10.244.0.0/16", "fd00:10:244::/48"), Services: prefixesOf("10.96.0.0/16", "fd00:10:96::/112")}
	var want []netip.Addr
	for i, to := range []netip.Addr{a("172.18.0.4"), a("169.254.169.254"), a("192.0.2.1"), a("10.244.1.9"), a("10.96.0.7"),
		a("fc00::4"), a("fd00:ec2::254"), a("2001:db8::1"), a("fd00:10:244:2::9"), a("fd00:10:96::7")} {
		pod, own := a(fmt.Sprintf("10.244.1.%d", i+3)), a("172.18.0.3")
		if to.Is6() {
			pod, own = a(fmt.Sprintf("fd00:10:244:2::%d", i+3)), a("fc00::3")
		}
		connect(t, pod, to, own)
		if to != outside(pod) {
			want = append(want, pod)
		}
	}
	n, err := conntrack.FlushTranslated(t.Context(), topology.Families, leaving(func(netip.Addr, netip.Addr) bool { return true }, hosts, nodeLocal, ranges))
	if err != nil || n != 2 {
		t.Errorf("%d deleted, %v", n, err)
	}
	if got := connected(t); !slices.Equal(got, want) {
		t.Errorf("connections of %v are left, want %v", got, want)
	}
}

// outside returns an address outside the cluster, of the family of a pod.
func outside(pod netip.Addr) netip.Addr {
	if pod.Is6() {
		return netip.MustParseAddr("2001:db8::1")
	}
	return netip.MustParseAddr("192.0.2.1")
}

// connect creates the conntrack entry of a connection of a pod whose other side, dst, sees the address to.
func connect(t *testing.T, pod, dst, to netip.Addr) {
	t.Helper()
	family := netlink.InetFamily(netlink.FAMILY_V4)
	if pod.Is6() {
		family = netlink.FAMILY_V6
	}
	flow := &netlink.ConntrackFlow{FamilyType: uint8(family), TimeOut: 100,
		Forward: netlink.IPTuple{SrcIP: pod.AsSlice(), DstIP: dst.AsSlice(), SrcPort: 4000, DstPort: 53, Protocol: 17},
		Reverse: netlink.IPTuple{SrcIP: dst.AsSlice(), DstIP: to.AsSlice(), SrcPort: 53, DstPort: 4000 + uint16(pod.AsSlice()[len(pod.AsSlice())-1]), Protocol: 17},
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, family, flow); err != nil {
		t.Fatalf("make an entry: %v", err)
	}
}

// connected returns the pods that have connections, sorted.
func connected(t *testing.T) []netip.Addr {
	t.Helper()
	var pods []netip.Addr
	for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			if pod, ok := netip.AddrFromSlice(f.Forward.SrcIP); ok {
				pods = append(pods, pod.Unmap())
			}
		}
	}
	slices.SortFunc(pods, netip.Addr.Compare)
	return pods
}

// TestParseTranslation: only rules of the chains that translate pods are parsed.
func TestParseTranslation(t *testing.T) {
	for line, want := range map[string]string{
		`-A OVN-KUBE-EGRESS-SVC -s 10.244.0.5/32 -m comment --comment "shop/checkout" -j SNAT --to-source 5.5.5.5`: "10.244.0.5 5.5.5.5",
		`-A OVN-KUBE-EGRESS-IP-MULTI-NIC -s fd00::5/128 -o eth1 -j SNAT --to-source fd10::5`:                       "fd00::5 fd10::5",
		`-A OVN-KUBE-EGRESS-SVC -m mark --mark 0x3f0 -m comment --comment DoNotSNAT -j RETURN`:                     "",
		`-A OVN-KUBE-EGRESS-SVC -s 10.244.0.0/16 -j SNAT --to-source 5.5.5.5`:                                      "",
		`-A POSTROUTING -s 10.244.0.5/32 -j SNAT --to-source 5.5.5.5`:                                              "",
		`:OVN-KUBE-EGRESS-SVC - [0:0]`: "",
		`-A`:                           "",
		`-A OVN-KUBE-EGRESS-SVC -s`:    "",
	} {
		got := ""
		if read, ok := parseTranslation(line); ok {
			got = strings.Join([]string{read.pod.String(), read.to.String()}, " ")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// halfSwept are chains of which one translation is deleted at a time; the last sweep succeeds.
type halfSwept struct{ left []translation }

func (h *halfSwept) Resync(context.Context) error { return nil }

func (h *halfSwept) Sweep(context.Context) error {
	if h.left = h.left[1:]; len(h.left) > 1 {
		return errors.New("not yet")
	}
	return nil
}

// TestEndedInHalves: connections whose translation is deleted are deleted at once, even if leftovers remain, those of the latter later,
// and those of a translation that is wanted never, even if it ends afterwards.
func TestEndedInHalves(t *testing.T) {
	a := netip.MustParseAddr
	all := []translation{{a("10.244.1.3"), a("5.5.5.5")}, {a("fd00::3"), a("fd55::5")}, {a("10.244.1.4"), a("5.5.5.5")}}
	h := &halfSwept{left: slices.Clone(all)}
	var flushed []string
	e := &endedTranslations{
		read: func(context.Context) (map[translation]bool, error) {
			now := map[translation]bool{}
			for _, t := range h.left {
				now[t] = true
			}
			return now, nil
		},
		flush: func(_ context.Context, stale func(src, to netip.Addr) bool, ended []netip.Addr) error {
			for i, t := range all {
				if stale(t.pod, t.to) {
					flushed = append(flushed, fmt.Sprint(i, ended))
				}
			}
			return nil
		},
	}
	e.note(t.Context())
	c := translatingChains{h, e}
	for i, want := range [][]string{{"0 []"}, {"0 []", "1 [fd55::5]"}, {"0 []", "1 [fd55::5]"}} {
		if err := c.Sweep(t.Context()); (err != nil) != (i == 0) || !slices.Equal(flushed, want) {
			t.Errorf("sweep %d: flushed %q, want %q, %v", i, flushed, want, err)
		}
	}
}
