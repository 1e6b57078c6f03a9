package app

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/conntrack"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iprule"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/route"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"

	egressservicev1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressservice/v1"
)

// wayFamily are the addresses of a family.
type wayFamily struct {
	flag, tool, pod, mp0, far string
	networks                  [3]string // of breth0, eth1 and eth2, with %d for the node, 3, and the machine, 1
	egressIP                  string    // on eth1
}

var wayFamilies = []wayFamily{
	{"-4", "iptables", "10.244.1.5/24", "10.244.1.2/24", "198.51.100.0/24", [3]string{"172.18.0.%d/16", "10.10.10.%d/24", "192.168.50.%d/24"}, "10.10.10.5"},
	{"-6", "ip6tables", "fd00:10:244:1::5/64", "fd00:10:244:1::2/64", "2001:db8:9::/64", [3]string{"fc00:f853::%d/64", "fd10::%d/64", "fd50::%d/64"}, "fd10::5"},
}

var wayLinks = []string{"breth0", "eth1", "eth2"}

func bare(prefix string) netip.Addr { return netip.MustParsePrefix(prefix).Addr() }

// node and machine return an address in the network of a link.
func (f wayFamily) node(link int) netip.Addr    { return bare(fmt.Sprintf(f.networks[link], 3)) }
func (f wayFamily) machine(link int) netip.Addr { return bare(fmt.Sprintf(f.networks[link], 1)) }

// Tables of networks: by eth2, by eth1, and by both.
const (
	blue = 100 + iota
	green
	both
)

// way is how a pod leaves: through the gateway router, which gives it the address of breth0, with an EgressIP on eth1, or not, and by
// the table of an EgressService's network, or 0.
type way struct {
	router, egressIP bool
	network          int
}

// ways are a node, one of its pods, and a machine outside that the pod reaches by several links, as in local gateway mode.
type ways struct {
	t             *testing.T
	node          *netnstest.NS
	pods, outside string // network namespaces
	rules         *host.Set[host.IPRule, struct{}]
	chains        *iptables.Writer
	server        *net.UDPConn
	sent          byte
}

func newWays(t *testing.T) *ways {
	t.Helper()
	w := &ways{t: t, node: netnstest.New(t), pods: elsewhere(t), outside: elsewhere(t), rules: iprule.NewSet()}
	chains, err := iptables.New(chainsOf(topology.Families))
	if err != nil {
		t.Fatal(err)
	}
	w.chains = chains
	w.node.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
	w.in(w.outside, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
	connect := func(name, peer, where string) {
		t.Helper()
		if err := link.EnsureVeth(link.Veth{Host: name, Peer: peer, MTU: 1500, Netns: where}); err != nil {
			t.Fatal(err)
		}
		w.node.Run("ip", "link", "set", name, "up")
		w.in(where, "ip", "link", "set", peer, "up")
	}
	connect(topology.ManagementPort, "eth0", w.pods)
	for _, name := range wayLinks {
		connect(name, name, w.outside)
	}
	for _, f := range wayFamilies {
		w.address(f)
	}
	w.server = w.socket(w.outside, netip.IPv6Unspecified(), 9)
	return w
}

// address adds the addresses and routes of a family.
func (w *ways) address(f wayFamily) {
	w.t.Helper()
	add := func(where, a, dev string) {
		w.t.Helper()
		args := []string{f.flag, "addr", "add", a, "dev", dev}
		if f.flag == "-6" {
			args = append(args, "nodad")
		}
		w.in(where, "ip", args...)
	}
	add("", f.mp0, topology.ManagementPort)
	add(w.pods, f.pod, "eth0")
	w.in(w.pods, "ip", f.flag, "route", "add", "default", "via", bare(f.mp0).String())
	w.in(w.outside, "ip", f.flag, "route", "add", "local", f.far, "dev", "lo")
	for i, n := range f.networks {
		add("", fmt.Sprintf(n, 3), wayLinks[i])
		add(w.outside, fmt.Sprintf(n, 1), wayLinks[i])
	}
	via := func(l int) string { return f.machine(l).String() }
	w.node.Run("ip", f.flag, "route", "add", "default", "via", via(0))
	w.node.Run("ip", f.flag, "route", "add", "default", "via", via(2), "table", fmt.Sprint(blue))
	w.node.Run("ip", f.flag, "route", "add", "default", "via", via(1), "table", fmt.Sprint(green))
	w.node.Run("ip", f.flag, "route", "add", "default", "table", fmt.Sprint(both), "nexthop", "via", via(1), "nexthop", "via", via(2))
	w.node.Run("ip", f.flag, "addr", "add", f.egressIP, "dev", "eth1", "preferred_lft", "0") // as we add it
	w.node.Run(f.tool, "-t", "nat", "-A", "POSTROUTING", "-s", f.pod, "!", "-o", topology.ManagementPort, "-j", "MASQUERADE")
}

// in runs a command in a namespace, or on the node.
func (w *ways) in(where, name string, args ...string) {
	w.t.Helper()
	run := func() error {
		_, err := w.node.Try(name, args...)
		return err
	}
	var err error
	if where == "" {
		err = run()
	} else {
		err = link.Inside(where, run)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// elsewhere creates a network namespace that lives until the test ends, and returns its path.
func elsewhere(t *testing.T) string {
	t.Helper()
	made, hold := make(chan int, 1), make(chan struct{})
	t.Cleanup(func() { close(hold) })
	go func() {
		defer func() { <-hold }()
		made <- netnstest.New(t).FD()
	}()
	return fmt.Sprintf("/proc/self/fd/%d", <-made)
}

// begin makes a pod leave by a way, without connections of earlier ones.
func (w *ways) begin(f wayFamily, by way) {
	w.t.Helper()
	w.lead(f, by)
	if _, err := conntrack.FlushKernel(w.t.Context(), conntrack.Filter{Src: bare(f.pod)}); err != nil {
		w.t.Fatal(err)
	}
}

// lead writes what the node has for a pod that leaves by a way. The gateway router is an iptables rule here: its entries and those
// of the host look the same on the kernel's datapath.
func (w *ways) lead(f wayFamily, by way) {
	w.t.Helper()
	pod, ctx := bare(f.pod), w.t.Context()
	router := []string{"POSTROUTING", "-s", f.pod, "-o", "breth0", "-j", "SNAT", "--to-source", f.node(0).String()}
	_, _ = w.node.Try(f.tool, append([]string{"-t", "nat", "-D"}, router...)...)
	if by.router {
		w.node.Run(f.tool, append([]string{"-t", "nat", "-I"}, router...)...)
	}
	plan := egressip.HostPlan(nil, nil, nil)
	if by.egressIP {
		eth1 := host.Network{Link: "eth1", Index: 77, Routes: []host.LinkRoute{
			{Dst: topology.Everywhere(topology.FamilyOf(pod)), Table: topology.MainTable, Via: f.machine(1)}}}
		plan = egressip.HostPlan([]egressip.LinkAssignment{{Addr: netip.MustParseAddr(f.egressIP), Link: eth1}}, func(netip.Addr) bool { return true }, []netip.Addr{pod})
	}
	services := map[host.IPRule]struct{}{}
	if by.network != 0 {
		s := egressservice.Service{Host: egressservicev1.HostAll, Network: "blue", Endpoints: []egressservice.Endpoint{{Addr: pod, Node: "me"}}}
		services = egressservice.IPRules(s, "me", host.RoutingTable{Number: by.network}, nil, nil)
	}
	err := errors.Join(route.NewSet().Apply(ctx, "prod", plan.Routes), w.chains.Apply(ctx, egressip.Contributor("prod"), plan.Rules),
		w.rules.Apply(ctx, egressip.Contributor("prod"), plan.IPRules), w.rules.Apply(ctx, egressservice.Contributor("shop/checkout"), services))
	if err != nil {
		w.t.Fatal(err)
	}
}

// socket opens a socket for a test, in a namespace.
func (w *ways) socket(where string, addr netip.Addr, port int) *net.UDPConn {
	w.t.Helper()
	var conn *net.UDPConn
	err := link.Inside(where, func() (err error) {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: addr.AsSlice(), Port: port})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// seen returns the address with which a packet from a socket of a pod arrives.
func (w *ways) seen(client *net.UDPConn, to netip.Addr) (from netip.Addr) {
	w.t.Helper()
	eventually.True(w.t, "a packet to "+to.String(), func() bool {
		w.sent++
		if _, err := client.WriteToUDPAddrPort([]byte{w.sent}, netip.AddrPortFrom(to, 9)); err != nil {
			w.t.Fatal(err)
		}
		if err := w.server.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			w.t.Fatal(err)
		}
		for { // earlier packets may still have been on their way
			text := make([]byte, 1)
			_, addr, err := w.server.ReadFromUDPAddrPort(text)
			if from = addr.Addr().Unmap(); err != nil || text[0] == w.sent {
				return err == nil
			}
		}
	})
	return from
}

// flush deletes the connections of a pod with the address of a former link, and returns how many there were.
func (w *ways) flush(pod netip.Addr) int {
	w.t.Helper()
	n, err := conntrack.FlushFormerLinks(w.t.Context(), topology.ManagementPort, []string{"breth0"}, topology.Families, func(src, _ netip.Addr) bool { return src == pod })
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestWaysOut: after a change of a pod's way out, an open connection has the address of the link by which it leaves, and
// keeps its entry if it has that already. The kernel itself ends those that it masquerades.
func TestWaysOut(t *testing.T) {
	w := newWays(t)
	for _, f := range wayFamilies {
		addrs := map[way]netip.Addr{
			{}: f.node(0), {router: true}: f.node(0), {network: blue}: f.node(2), {network: green}: f.node(1),
			{egressIP: true}: netip.MustParseAddr(f.egressIP), {egressIP: true, network: blue}: f.node(2), {egressIP: true, network: green}: netip.MustParseAddr(f.egressIP),
		}
		far := bare(f.far).Next()
		for _, c := range []struct {
			before, after way
			byKernel      bool
		}{
			{before: way{egressIP: true}, after: way{egressIP: true, network: blue}},
			{before: way{egressIP: true, network: green}, after: way{egressIP: true, network: blue}},
			{before: way{egressIP: true}, after: way{egressIP: true, network: green}},
			{before: way{egressIP: true, network: green}, after: way{egressIP: true}, byKernel: true},
			{before: way{egressIP: true, network: blue}, after: way{egressIP: true}, byKernel: true},
			{before: way{network: blue}, after: way{egressIP: true}, byKernel: true},
			{before: way{network: blue}, after: way{network: green}, byKernel: true},
			{before: way{network: blue}, byKernel: true},
			{after: way{network: blue}, byKernel: true},
		} {
			client := w.socket(w.pods, bare(f.pod), 0)
			w.begin(f, c.before)
			if got := w.seen(client, far); got != addrs[c.before] {
				t.Fatalf("%+v: at first the pod has the address %s, want %s", c.before, got, addrs[c.before])
			}
			w.lead(f, c.after)
			if !c.byKernel {
				w.flush(bare(f.pod))
			}
			if got := w.seen(client, far); got != addrs[c.after] {
				t.Errorf("%+v, then %+v: the connection has the address %s, want %s", c.before, c.after, got, addrs[c.after])
			}
			if n := w.flush(bare(f.pod)); n > 0 {
				t.Errorf("%+v, then %+v: %d connections with the right address were deleted", c.before, c.after, n)
			}
		}
	}
}

// TestWaysOutUnknown: connections stay whose address may be right: of one of several next hops, or of breth0, whose addresses the gateway
// router gives as well.
func TestWaysOutUnknown(t *testing.T) {
	w := newWays(t)
	for _, f := range wayFamilies {
		for _, c := range []struct{ before, after way }{
			{way{egressIP: true}, way{egressIP: true, network: both}},
			{way{router: true}, way{network: blue}},
		} {
			client := w.socket(w.pods, bare(f.pod), 0)
			w.begin(f, c.before)
			far := bare(f.far)
			for range 16 { // the kernel chooses a next hop for each destination
				far = far.Next()
				w.seen(client, far)
			}
			w.lead(f, c.after)
			if n := w.flush(bare(f.pod)); n > 0 {
				t.Errorf("%+v, then %+v: %d connections were deleted", c.before, c.after, n)
			}
		}
	}
}
