package node

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// advertise sends a router advertisement according to RFC 4861 from the other machine:
// a default route through it, and a prefix for addresses.
func (l *lab) advertise(prefix netip.Prefix) {
	l.t.Helper()
	l.advertiseOn("far0", prefix)
}

func (l *lab) advertiseOn(link string, prefix netip.Prefix) {
	l.t.Helper()
	message := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0} // a router for 1800 s
	message = append(message, 3, 4, byte(prefix.Bits()), 0xc0)           // a prefix, on link, for addresses
	message = append(message, 0, 0, 14, 16, 0, 0, 7, 8, 0, 0, 0, 0)      // valid for 3600 s, preferred for 1800 s
	message = append(message, prefix.Addr().AsSlice()...)                // the prefix
	far, err := netns.GetFromName("far")
	if err != nil {
		l.t.Fatal(err)
	}
	defer far.Close()
	<-l.ns.Go(func() { err = sendAdvertisement(far, link, message) })
	if err != nil {
		l.t.Fatal(err)
	}
}

// sendAdvertisement sends the message through a link to all nodes of the link. The kernel
// fills in the checksum. The calling thread stays in the network namespace.
func sendAdvertisement(far netns.NsHandle, name string, message []byte) error {
	if err := netns.Set(far); err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return err
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	to := &unix.SockaddrInet6{ZoneId: uint32(link.Index), Addr: netip.MustParseAddr("ff02::1").As16()}
	return unix.Sendto(s, message, 0, to)
}

// TestAdvertisements: a host that has its default route from router advertisements
// keeps it when it starts to forward, and continues to accept advertisements, on the bridge.
func TestAdvertisements(t *testing.T) {
	l := newLab(t)
	l.ns.Run("ip", "-6", "route", "del", "default")
	awaitAddress := func(link, prefix string) {
		t.Helper()
		eventually.True(t, link+" to have an address of "+prefix, func() bool {
			l.advertise(netip.MustParsePrefix(prefix)) // an earlier one may have been sent too early
			return strings.Contains(l.ns.Run("ip", "-6", "addr", "show", "dev", link), strings.TrimSuffix(prefix, ":/64"))
		})
	}
	routes := func() string { return l.ns.Run("ip", "-6", "route", "show", "default") }
	awaitAddress("eth0", "fc00:21::/64")
	if !strings.Contains(routes(), "dev eth0") {
		t.Fatalf("no default route: %s", routes())
	}
	g := l.start(l.db)
	l.mustPass(g)
	eventually.True(t, "breth0 to ask for routers", func() bool {
		asked := strings.Fields(l.ns.Run("cat", "/proc/net/dev_snmp6/breth0"))
		i := slices.Index(asked, "Icmp6OutRouterSolicits")
		return i >= 0 && asked[i+1] != "0"
	})
	awaitAddress("breth0", "fc00:22::/64")
	if got := routes(); !strings.Contains(got, "dev breth0 proto ra") || strings.Contains(got, "dev eth0") {
		t.Errorf("after the bring-up the default routes are %q", got)
	}
	for range 2 { // the second is a restart
		l.mustPass(l.start(l.db))
		if got, want := l.nextHops(), []string{"172.18.0.1", l.linkLocalOfFar()}; !slices.Equal(got, want) {
			t.Errorf("the node's next hops are %q, want %q", got, want)
		}
	}
	awaitAddress("breth0", "fc00:23::/64")
	if err := (Cleaner{OVS: l.db}).Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.ns.Run("sysctl", "-n", "net.ipv6.conf.eth0.accept_ra"); got != "1" {
		t.Errorf("after the clean-up accept_ra is %s", got)
	}
	awaitAddress("eth0", "fc00:24::/64")
	if got := routes(); !strings.Contains(got, "dev eth0 proto ra") {
		t.Errorf("after the clean-up the default routes are %q", got)
	}
}

// nextHops returns the default gateways that the node has published.
func (l *lab) nextHops() []string {
	l.t.Helper()
	n, err := l.kube.CoreV1().Nodes().Get(l.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	node, err := kube.Node(n)
	if err != nil {
		l.t.Fatal(err)
	}
	var out []string
	for _, hop := range node.Gateway.NextHops {
		out = append(out, hop.String())
	}
	return out
}

// linkLocalOfFar returns the address from which the other machine sends advertisements.
func (l *lab) linkLocalOfFar() string {
	l.t.Helper()
	fields := strings.Fields(l.far("ip", "-o", "-6", "addr", "show", "dev", "far0", "scope", "link"))
	i := slices.Index(fields, "inet6")
	if i < 0 || i+1 == len(fields) {
		l.t.Fatalf("far0 has no link-local address: %q", fields)
	}
	addr, _, _ := strings.Cut(fields[i+1], "/")
	return addr
}

// TestAdvertisementsElsewhere: a host continues to learn from router advertisements on a link to another network, and does
// not begin to on links to pods.
func TestAdvertisementsElsewhere(t *testing.T) {
	l := newLab(t)
	l.ns.Run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "far1", "netns", "far")
	l.ns.Run("ip", "link", "set", "eth1", "up")
	l.ns.Run("ip", "netns", "exec", "far", "ip", "link", "set", "far1", "up")
	eventually.True(t, "far1 to have an address", func() bool {
		return l.ns.Run("ip", "netns", "exec", "far", "ip", "-6", "addr", "show", "dev", "far1", "scope", "link", "-tentative") != ""
	})
	l.ns.Run("ip", "link", "add", "pod0", "type", "veth", "peer", "name", "pod1")
	awaitAddress := func(prefix string) {
		t.Helper()
		eventually.True(t, "eth1 to have an address of "+prefix, func() bool {
			l.advertiseOn("far1", netip.MustParsePrefix(prefix))
			return strings.Contains(l.ns.Run("ip", "-6", "addr", "show", "dev", "eth1"), strings.TrimSuffix(prefix, ":/64"))
		})
	}
	awaitAddress("fc00:31::/64")
	l.mustPass(l.start(l.db))
	awaitAddress("fc00:32::/64")
	if got := l.ns.Run("ip", "-6", "route", "show", "default", "dev", "eth1"); !strings.Contains(got, "proto ra") {
		t.Errorf("default routes of eth1: %q", got)
	}
	if got := l.ns.Run("sysctl", "-n", "net.ipv6.conf.pod0.accept_ra"); got != "1" {
		t.Errorf("accept_ra of a link to a pod is %s", got)
	}
	l.mustPass(l.start(l.db)) // a restart
	awaitAddress("fc00:33::/64")
	if err := (Cleaner{OVS: l.db}).Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.ns.Run("sysctl", "-n", "net.ipv6.conf.eth1.accept_ra"); got != "1" {
		t.Errorf("after the clean-up accept_ra is %s", got)
	}
}

// TestAdvertisementsOfLinkMadeAnew: a link that accepted router advertisements and is made anew, e.g. by a driver, accepts them
// again, whether a pass sees it absent or not, and even before it has an address. A link that an administrator had made a router, and
// links that others have created since, do not.
func TestAdvertisementsOfLinkMadeAnew(t *testing.T) {
	l := newLab(t)
	add := func(name string) { l.ns.Run("ip", "link", "add", name, "type", "bridge") }
	del := func(name string) { l.ns.Run("ip", "link", "del", name) }
	expect := func(when, name, want string) {
		t.Helper()
		if got := l.ns.Run("sysctl", "-n", "net.ipv6.conf."+name+".accept_ra"); got != want {
			t.Errorf("%s accept_ra of %s is %s, want %s", when, name, got, want)
		}
	}
	add("host1")
	add("router1")
	l.ns.Run("sysctl", "-w", "net.ipv6.conf.router1.forwarding=1")
	g := l.up()
	expect("at first", "host1", "2")
	add("new1")
	for _, seen := range []bool{true, false} {
		del("host1")
		del("router1")
		if seen {
			l.mustPass(g)
			l.mustPass(l.start(l.db)) // a restart
		}
		l.ns.Run("ip", "link", "add", "host1", "type", "veth", "peer", "name", "host2")
		add("router1")
		l.mustPass(g)
		expect("made anew", "host1", "2")
		expect("made anew", "router1", "1")
		expect("new", "new1", "1")
		expect("new", "host2", "1")
	}
	del("host1")
	l.mustPass(g)
	if err := (Cleaner{OVS: l.db}).Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.vs.Run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids"); strings.Contains(got, "host1") {
		t.Errorf("after the clean-up the record is %s", got)
	}
}

// TestAdvertisementsOnABridge: like TestAdvertisements, with the host's addresses on
// an existing bridge. Learned routes stay.
func TestAdvertisementsOnABridge(t *testing.T) {
	l := newLab(t)
	l.vs.Run("ovs-vsctl", "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev",
		"other_config:hwaddr=\""+nodeMAC+"\"", "--", "add-port", "breth0", "eth0")
	l.ns.Run("ip", "addr", "flush", "dev", "eth0")
	l.ns.Run("sysctl", "-w", "net.ipv6.conf.eth0.disable_ipv6=1")
	l.hostAddresses("breth0")
	l.ns.Run("ip", "-6", "route", "del", "default")
	eventually.True(t, "a default route", func() bool {
		l.advertise(netip.MustParsePrefix("fc00:21::/64"))
		return l.ns.Run("ip", "-6", "route", "show", "default") != ""
	})
	before := strings.Fields(l.ns.Run("ip", "-6", "route", "show", "default"))[:5]
	l.mustPass(l.start(l.db))
	after := strings.Fields(l.ns.Run("ip", "-6", "route", "show", "default"))
	if len(after) < 5 || !slices.Equal(after[:5], before) {
		t.Errorf("before the default route was %v, now it is %v", before, after)
	}
}

// TestNoAdvertisements: a host that does not accept router advertisements does not
// start to: because it has forwarded before, or because of the settings of the link.
func TestNoAdvertisements(t *testing.T) {
	for name, parameter := range map[string]string{
		"forwarding": "net.ipv6.conf.all.forwarding=1", "link": "net.ipv6.conf.eth0.accept_ra=0",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.ns.Run("sysctl", "-w", parameter)
			before := l.ns.Run("sysctl", "-n", "net.ipv6.conf.eth0.accept_ra")
			g := l.start(l.db)
			l.mustPass(g)
			l.mustPass(g)
			for _, link := range []string{"eth0", "breth0"} {
				if got := l.ns.Run("sysctl", "-n", "net.ipv6.conf."+link+".accept_ra"); got == "2" || link == "eth0" && got != before {
					t.Errorf("accept_ra of %s is %s", link, got)
				}
			}
		})
	}
}
