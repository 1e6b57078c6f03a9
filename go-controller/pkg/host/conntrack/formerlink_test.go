package conntrack

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// formerFamily is the test data of a family: in returns an address of a network, and local is a link-local one.
type formerFamily struct{ flag, single, subnet, network, far, local string }

func (f formerFamily) in(network, host int) string { return fmt.Sprintf(f.network, network, host) }

// The last number of pods, and their tables. newFormerHost says where they lead.
const (
	byEth2 = 102 + iota
	byEth1
	byEither
	byOthers
	byNone
	unreachable
	notAsked
)

// newFormerHost makes a host with the links mp0, breth0, eth1 and eth2, in networks 10 to 13, and eth3, without an address of its own.
func newFormerHost(t *testing.T, f formerFamily) {
	t.Helper()
	ns := netnstest.New(t)
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
	add := func(a, dev string, flags ...string) {
		t.Helper()
		if f.flag == "-6" {
			flags = append(flags, "nodad")
		}
		ns.Run("ip", append([]string{f.flag, "addr", "add", a, "dev", dev}, flags...)...)
	}
	for i, name := range []string{"mp0", "breth0", "eth1", "eth2", "eth3"} {
		ns.Veth(name, name+"-peer")
		if name != "eth3" {
			add(f.in(10+i, 3)+f.subnet, name)
		}
	}
	add(f.in(12, 5)+f.single, "eth1", "preferred_lft", "0")
	add(f.in(12, 6)+f.single, "eth1", "preferred_lft", "0")
	add(f.in(12, 6)+f.single, "eth3", "preferred_lft", "0")
	add(f.in(12, 7)+f.single, "lo")
	add(f.local+f.single, "eth1")
	for table, hops := range map[int][]string{
		byEth2: {"via", f.in(13, 1)}, byEth1: {"via", f.in(12, 1)}, byNone: {"dev", "eth3"}, notAsked: {"via", f.in(13, 1)},
		byEither: {"nexthop", "via", f.in(12, 1), "nexthop", "via", f.in(13, 1)},
		byOthers: {"nexthop", "via", f.in(11, 1), "nexthop", "via", f.in(13, 1)},
	} {
		ns.Run("ip", append([]string{f.flag, "route", "add", "default", "table", fmt.Sprint(table)}, hops...)...)
		ns.Run("ip", f.flag, "rule", "add", "priority", "5000", "from", f.in(10, table), "lookup", fmt.Sprint(table))
	}
	ns.Run("ip", f.flag, "route", "add", f.in(10, 9), "dev", "mp0", "table", fmt.Sprint(byEth2))
	ns.Run("ip", f.flag, "rule", "add", "priority", "5000", "from", f.in(10, unreachable), "unreachable")
}

// TestFlushFormerLinks: connections are deleted that have the address of a link by which they do not leave, and none whose address may be
// right.
func TestFlushFormerLinks(t *testing.T) {
	for _, f := range []formerFamily{
		{"-4", "/32", "/24", "10.%d.0.%d", "198.51.100.9", "169.254.7.1"}, {"-6", "/128", "/64", "fd%02d::%d", "2001:db8:9::9", "fe80::7:1"},
	} {
		t.Run(f.flag[1:], func(t *testing.T) {
			newFormerHost(t, f)
			cases := []struct {
				what    string
				pod     int
				dst, to string
				gone    bool
			}{
				{"another link's", byEth2, f.far, f.in(12, 5), true},
				{"another link's own", byEth2, f.far, f.in(12, 3), true},
				{"none of the next hops'", byOthers, f.far, f.in(12, 5), true},
				{"its link's", byEth2, f.far, f.in(13, 3), false},
				{"its link's, not its own", byEth1, f.far, f.in(12, 5), false},
				{"one of the next hops'", byEither, f.far, f.in(12, 5), false},
				{"the other of the next hops'", byEither, f.far, f.in(13, 3), false},
				{"the bridge's", byEth2, f.far, f.in(11, 3), false},
				{"shared by links", byEth2, f.far, f.in(12, 6), false},
				{"link-local", byEth2, f.far, f.local, false},
				{"of the loopback interface", byEth2, f.far, f.in(12, 7), false},
				{"of nobody here", byEth2, f.far, f.in(12, 8), false},
				{"by a link without its own", byNone, f.far, f.in(12, 5), false},
				{"no route", unreachable, f.far, f.in(12, 5), false},
				{"to a pod", byEth2, f.in(10, 9), f.in(12, 5), false},
				{"to the host", byEth2, f.in(13, 3), f.in(12, 5), false},
				{"not asked for", notAsked, f.far, f.in(12, 5), false},
			}
			for i, c := range cases {
				entry(t, f.in(10, c.pod), c.dst, c.dst, c.to, uint16(i+1), 0)
			}
			asked := func(src, _ netip.Addr) bool { return src != addr(f.in(10, notAsked)) }
			n, err := FlushFormerLinks(t.Context(), "mp0", []string{"breth0"}, topology.Families, asked)
			if err != nil || n != 3 {
				t.Errorf("%d deleted (%v)", n, err)
			}
			open := map[uint16]bool{}
			for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
				flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
				if err != nil {
					t.Fatal(err)
				}
				for _, flow := range flows {
					open[flow.Forward.DstPort] = true
				}
			}
			for i, c := range cases {
				if open[uint16(i+1)] == c.gone {
					t.Errorf("%s: still there: %v", c.what, c.gone)
				}
			}
		})
	}
}
