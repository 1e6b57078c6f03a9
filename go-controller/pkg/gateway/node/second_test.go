package node

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// secondWire gives the host another interface, to the same machine on another network.
func (l *lab) secondWire(dev string, addrs ...string) {
	l.t.Helper()
	l.ip("link add " + dev + " type veth peer name far-" + dev + " netns far")
	l.farIP("link set far-" + dev + " up")
	l.far("ethtool", "-K", "far-"+dev, "tx", "off", "tso", "off", "gso", "off")
	l.ns.Run("ethtool", "-K", dev, "tx", "off", "tso", "off", "gso", "off")
	commands := []string{"link set " + dev + " up"}
	for _, a := range addrs {
		commands = append(commands, "addr add "+a+" dev "+dev+" nodad")
	}
	l.ip(commands...)
}

// second starts a node whose gateways are on another interface and brings it up.
func (l *lab) second() *Gateway {
	l.t.Helper()
	l.secondWire("eth1", "192.168.50.3/24", "fd00:50::3/64")
	l.farIP("addr add 192.168.50.1/24 dev far-eth1", "addr add fd00:50::1/64 dev far-eth1 nodad")
	l.ns.Run("ip", "route", "add", "198.18.0.0/24", "via", "192.168.50.1", "dev", "eth1")
	l.annotate(kube.AnnotationNodeSubnets, subnets)
	g := l.with("eth1")
	l.mustPass(g)
	l.patch("breth0")
	l.patch("breth1")
	l.claim()
	eventually.True(l.t, "the node to be ready", func() bool {
		l.mustPass(g)
		return g.Waiting() == ""
	})
	return g
}

// with starts a node configured with a second uplink; "" for none.
func (l *lab) with(iface string) *Gateway {
	l.t.Helper()
	g := l.start(l.db)
	g.ExternalGatewayInterface = iface
	return g
}

// carries checks the second network's state on a link.
func (l *lab) carries(dev, when string) {
	l.t.Helper()
	for _, want := range []string{"192.168.50.3/24", "fd00:50::3/64"} {
		if got := l.ns.Run("ip", "addr", "show", "dev", dev); !strings.Contains(got, want) {
			l.t.Errorf("%s: %s has no %s:\n%s", when, dev, want, got)
		}
	}
	if got := l.ns.Run("ip", "route", "show", "198.18.0.0/24"); !strings.Contains(got, "via 192.168.50.1 dev "+dev+" ") {
		l.t.Errorf("%s: the route is %q, want it on %s", when, got, dev)
	}
}

// answers checks that the host answers on the second network.
func (l *lab) answers(when string) {
	l.t.Helper()
	for _, addr := range []string{"[192.168.50.3]:9", "[fd00:50::3]:9"} {
		eventually.True(l.t, when+": an answer of "+addr, func() bool {
			err := link.Inside("/run/netns/far", func() error {
				c, err := net.DialTimeout("tcp", addr, time.Second)
				if err == nil {
					_ = c.Close()
				}
				return err
			})
			return errors.Is(err, unix.ECONNREFUSED)
		})
	}
}

func (l *lab) mappings() string {
	l.t.Helper()
	return l.vs.Run("ovs-vsctl", "--if-exists", "get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings")
}

// config returns the node's annotation about its uplinks.
func (l *lab) config() string {
	l.t.Helper()
	n, err := l.node.Core().V1().Nodes().Lister().Get(nodeName)
	if err != nil {
		l.t.Fatal(err)
	}
	return n.Annotations[kube.AnnotationL3Gateway]
}

// toldOf waits until the annotation matches whether there is a second uplink.
func (l *lab) toldOf(second bool) {
	l.t.Helper()
	eventually.True(l.t, "the annotation", func() bool {
		has := strings.Contains(l.config(), `"exgw-interface-id":"breth1_n1"`) &&
			strings.Contains(l.config(), `"exgw-ip-addresses":["192.168.50.3/24","fd00:50::3/64"]`)
		return has == second && strings.Contains(l.config(), "exgw") == second
	})
}

// TestSecondUplink creates a bridge for external gateways, keeps it over a restart and its
// loss, and removes it again.
func TestSecondUplink(t *testing.T) {
	l := newLab(t)
	g := l.second()
	there := func(when string) {
		t.Helper()
		l.carries("breth1", when)
		l.reachable()
		l.answers(when)
		if got := l.mappings(); got != "\"physnet:breth0,exgatewayphysnet:breth1\"" {
			t.Errorf("%s: mappings are %s", when, got)
		}
		l.toldOf(true)
	}
	there("at the start")
	flows := strings.Join(l.vs.FlowsByName("breth1"), "\n")
	for _, want := range []string{"nat(src=192.168.50.3)", "nat(src=fd00:50::3)", "zone=64001"} {
		if !strings.Contains(flows, want) {
			t.Errorf("no %s in the flows of breth1:\n%s", want, flows)
		}
	}
	if first := strings.Join(l.vs.FlowsByName("breth0"), "\n"); strings.Contains(first, "192.168.50.3") || strings.Contains(first, "64001") {
		t.Errorf("the flows of breth0 have to do with the second network:\n%s", first)
	}

	before := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "next_cfg")
	l.mustPass(l.with("eth1"))
	if after := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "next_cfg"); after != before {
		t.Errorf("a restart wrote the Open vSwitch database: next_cfg %s, before %s", after, before)
	}
	there("after a restart")

	// An egress address on that network does not belong to the host: it is not restored with the bridge.
	egress := netip.MustParseAddr("192.168.50.33")
	g.Foreign = func() []netip.Addr { return []netip.Addr{egress} }
	l.ns.Run("ip", "addr", "add", egress.String()+"/32", "dev", "breth1")
	l.mustPass(g)
	l.deleteBridges("breth1")
	l.mustPass(g)
	if got := l.ns.Run("ip", "addr", "show", "dev", "breth1"); strings.Contains(got, egress.String()) {
		t.Errorf("the bridge was restored with an egress address:\n%s", got)
	}
	l.patch("breth1")
	l.mustPass(g)
	there("after the bridge was lost")

	l.mustPass(l.with(""))
	gone := func(when string) {
		t.Helper()
		l.carries("eth1", when)
		l.answers(when)
		if got := l.vs.Run("ovs-vsctl", "list-br"); strings.Contains(got, "breth1") {
			t.Errorf("%s: bridges are %q", when, got)
		}
		if got := l.mappings(); strings.Contains(got, "exgatewayphysnet") {
			t.Errorf("%s: mappings are %s", when, got)
		}
	}
	gone("without the option")
	l.toldOf(false)
	l.reachable()
	if m := recall(g.StateFile, nodeName); m.Second != nil {
		t.Errorf("the node still remembers %+v", m.Second)
	}

	l.mustPass(l.with("eth1"))
	l.patch("breth1")
	l.mustPass(l.with("eth1"))
	there("with the option again")
	l.deleteBridges("breth1")
	l.mustPass(l.with(""))
	gone("without the option, after the bridge was lost")

	l.mustPass(l.with("eth1"))
	if err := (Cleaner{OVS: l.db, Node: nodeName, StateFile: g.StateFile}).Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone("after cleaning up")
}

// TestSecondUplinkTunnels: a lost bridge is restored even if tunnels end at one of its addresses, which the host does not have
// until then.
func TestSecondUplinkTunnels(t *testing.T) {
	for _, addr := range []string{"192.168.50.3", "fd00:50::3"} {
		l := newLab(t)
		g := l.second()
		g.EncapIP = netip.MustParseAddr(addr)
		l.mustPass(g)
		for _, bridges := range [][]string{{"breth1"}, {"breth0", "breth1"}} {
			l.deleteBridges(bridges...)
			if err := l.pass(g); err != nil {
				t.Errorf("%s: without %v: %v", addr, bridges, err)
			}
			l.carries("breth1", "restored")
			l.reachable()
		}
	}
}

// TestSecondUplinkOfTwo: the error about an interface that cannot be the second uplink names the
// option, and the interface is left alone; the node has the rest of its network.
func TestSecondUplinkOfTwo(t *testing.T) {
	l := newLab(t)
	l.annotate(kube.AnnotationNodeSubnets, subnets)
	l.secondWire("bare0")
	l.secondWire("near0", "172.18.77.1/24")
	l.secondWire("small0", "192.168.51.3/24")
	l.ns.Run("ip", "link", "set", "small0", "mtu", "1300")
	for _, c := range []struct{ iface, want string }{
		{"none0", "none0"}, {"eth0", "is the gateway's own"}, {"breth0", "is the gateway's own"}, {"bare0", "no address"},
		{"near0", "overlaps 172.18.0.0/16 of eth0"}, {"small0", "MTU of 1300"},
	} {
		g := l.with(c.iface)
		err := l.pass(g)
		if err == nil || !strings.Contains(err.Error(), "--exgw-interface "+c.iface+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.iface, err, c.want)
		}
		if got := g.Waiting(); got != "the bridge for external gateways" {
			t.Errorf("%s: the node waits for %q", c.iface, got)
		}
		l.reachable()
		if got := l.mappings(); got != "\"physnet:breth0\"" {
			t.Errorf("%s: mappings are %s", c.iface, got)
		}
		eventually.True(t, "the ordinary annotation", func() bool { return strings.Contains(l.config(), "breth0_n1") && !strings.Contains(l.config(), "exgw") })
	}
	if got := l.ns.Run("ip", "addr", "show", "dev", "near0"); !strings.Contains(got, "172.18.77.1/24") {
		t.Errorf("an interface that was refused has\n%s", got)
	}
	l.mustPass(l.with(""))
	if got := strings.Fields(l.vs.Run("ovs-vsctl", "list-br")); len(got) != 2 {
		t.Errorf("bridges are %v", got)
	}
}

// TestSecondUplinkFails: the existing configuration stays in force while the second uplink fails.
func TestSecondUplinkFails(t *testing.T) {
	l := newLab(t)
	g := l.second()
	l.toldOf(true)
	mapped := l.mappings()
	l.ns.Run("ip", "link", "del", "eth1")
	if err := l.pass(g); err == nil || !strings.Contains(err.Error(), "--exgw-interface eth1: ") {
		t.Errorf("error %v", err)
	}
	l.toldOf(true)
	if got := l.mappings(); got != mapped {
		t.Errorf("mappings are %s, before %s", got, mapped)
	}
	l.reachable()
}

// TestSecondUplinkRenamed: a network that is no longer for external gateways goes back to its uplink, whatever the
// uplink's name is then.
func TestSecondUplinkRenamed(t *testing.T) {
	for what, leave := range map[string]func(*lab, string) error{
		"without the option": func(l *lab, _ string) error { return l.pass(l.with("")) },
		"clean-up": func(l *lab, file string) error {
			return Cleaner{OVS: l.db, Node: nodeName, StateFile: file}.Cleanup(t.Context())
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t)
			file := l.second().StateFile
			l.rename("eth1", "ens4")
			if err := leave(l, file); err != nil {
				t.Fatal(err)
			}
			l.carries("ens4", what)
			l.answers(what)
			if got := l.vs.Run("ovs-vsctl", "list-br"); strings.Contains(got, "breth1") {
				t.Errorf("bridges are %q", got)
			}
			l.reachable()
		})
	}
}

// TestSecondUplinkRemoved: a card that is no longer in the machine does not keep a node that does without it from its network.
func TestSecondUplinkRemoved(t *testing.T) {
	l := newLab(t)
	l.second()
	l.ns.Run("ip", "link", "del", "eth1")
	l.mustPass(l.with(""))
	if got := l.vs.Run("ovs-vsctl", "list-br"); strings.Contains(got, "breth1") {
		t.Errorf("bridges are %q", got)
	}
	l.reachable()
}
