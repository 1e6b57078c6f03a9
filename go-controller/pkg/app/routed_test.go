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

// ways are a node, one of its pods, and a machine outside that the pod reaches by several links, as in local gateway mode.
type ways struct {
	t             *testing.T
	node          *netnstest.NS
	pods, outside string // network namespaces
	rules         *host.Set[host.IPRule, struct{}]
	chains        *iptables.Writer
}

// wayFamily are the addresses of a family. The networks of breth0 and of two more links come first, then another one of breth0, but not
// for IPv6: which of its addresses breth0 gives depends on the destination.
type wayFamily struct {
	flag, tool, pod, mp0, far string
	networks                  [4]string // with %d for the node, 3, and the machine, 1
	egressIP                  string
}

var wayFamilies = []wayFamily{
	{"-4", "iptables", "10.244.1.5/24", "10.244.1.2/24", "198.51.100.9/32", [4]string{"172.18.0.%d/16", "10.10.10.%d/24", "192.168.50.%d/24", "172.19.0.%d/16"}, "10.10.10.5"},
	{"-6", "ip6tables", "fd00:10:244:1::5/64", "fd00:10:244:1::2/64", "2001:db8:9::9/128", [4]string{"fc00:f853::%d/64", "fd10::%d/64", "fd50::%d/64"}, "fd10::5"},
}

func bare(prefix string) netip.Addr { return netip.MustParsePrefix(prefix).Addr() }

// Tables of the networks.
const blue, red = 100, 101

func newWays(t *testing.T) *ways {
	t.Helper()
	w := &ways{t: t, node: netnstest.New(t), pods: elsewhere(t), outside: elsewhere(t), rules: iprule.NewSet()}
	w.node.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
	in := func(where string, commands ...[]string) {
		t.Helper()
		err := link.Inside(where, func() (err error) {
			for _, c := range commands {
				_, failed := w.node.Try(c[0], c[1:]...)
				err = errors.Join(err, failed)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	links := []string{"breth0", "eth1", "eth2"}
	if err := link.EnsureVeth(link.Veth{Host: topology.ManagementPort, Peer: "eth0", MTU: 1500, Netns: w.pods}); err != nil {
		t.Fatal(err)
	}
	w.node.Run("ip", "link", "set", topology.ManagementPort, "up")
	in(w.pods, []string{"ip", "link", "set", "eth0", "up"})
	in(w.outside, []string{"sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"})
	for _, name := range links {
		if err := link.EnsureVeth(link.Veth{Host: name, Peer: name, MTU: 1500, Netns: w.outside}); err != nil {
			t.Fatal(err)
		}
		w.node.Run("ip", "link", "set", name, "up")
		in(w.outside, []string{"ip", "link", "set", name, "up"})
	}
	chains, err := iptables.New(chainsOf(topology.Families))
	if err != nil {
		t.Fatal(err)
	}
	w.chains = chains
	for _, f := range wayFamilies {
		add := func(a, dev string) []string {
			args := []string{"ip", f.flag, "addr", "add", a, "dev", dev}
			if f.flag == "-6" {
				args = append(args, "nodad")
			}
			return args
		}
		mp0 := add(f.mp0, topology.ManagementPort)
		w.node.Run(mp0[0], mp0[1:]...)
		in(w.pods, add(f.pod, "eth0"), []string{"ip", f.flag, "route", "add", "default", "via", bare(f.mp0).String()})
		in(w.outside, add(f.far, "lo"))
		for i, n := range f.networks {
			if n == "" {
				continue
			}
			dev := links[i%len(links)]
			here := add(fmt.Sprintf(n, 3), dev)
			w.node.Run(here[0], here[1:]...)
			in(w.outside, add(fmt.Sprintf(n, 1), dev))
		}
		via := func(i int) string { return bare(fmt.Sprintf(f.networks[i], 1)).String() }
		w.node.Run("ip", f.flag, "route", "add", "default", "via", via(0))
		w.node.Run("ip", f.flag, "route", "add", "default", "via", via(2), "table", fmt.Sprint(blue))
		if f.networks[3] != "" {
			w.node.Run("ip", f.flag, "route", "add", "default", "via", via(3), "table", fmt.Sprint(red))
		}
		w.node.Run("ip", f.flag, "addr", "add", f.egressIP, "dev", "eth1")
		w.node.Run(f.tool, "-t", "nat", "-A", "POSTROUTING", "-s", f.pod, "!", "-o", topology.ManagementPort, "-j", "MASQUERADE")
	}
	return w
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

// lead writes what the node has for a pod: an EgressIP on eth1, or not, and the table of an EgressService's network, or 0.
func (w *ways) lead(f wayFamily, withEgressIP bool, network int) {
	w.t.Helper()
	pod, ctx := bare(f.pod), w.t.Context()
	plan := egressip.HostPlan(nil, nil, nil)
	if withEgressIP {
		eth1 := host.Network{Link: "eth1", Index: 77, Routes: []host.LinkRoute{
			{Dst: topology.Everywhere(topology.FamilyOf(pod)), Table: 254, Via: bare(fmt.Sprintf(f.networks[1], 1))}}}
		plan = egressip.HostPlan([]egressip.LinkAssignment{{Addr: netip.MustParseAddr(f.egressIP), Link: eth1}}, func(netip.Addr) bool { return true }, []netip.Addr{pod})
	}
	services := map[host.IPRule]struct{}{}
	if network != 0 {
		s := egressservice.Service{Host: egressservicev1.HostAll, Network: "blue", Endpoints: []egressservice.Endpoint{{Addr: pod, Node: "me"}}}
		services = egressservice.IPRules(s, "me", host.RoutingTable{Number: network}, nil, nil)
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

// TestWaysOut: an open connection of a pod has the address of the link by which it leaves, after each change of its way out,
// and keeps its entry if it has that already.
func TestWaysOut(t *testing.T) {
	w := newWays(t)
	var sent byte
	for _, f := range wayFamilies {
		pod := bare(f.pod)
		server := w.socket(w.outside, bare(f.far), 9)
		type way struct {
			egressIP bool
			network  int
		}
		addrs := map[way]netip.Addr{
			{}: bare(fmt.Sprintf(f.networks[0], 3)), {egressIP: true}: netip.MustParseAddr(f.egressIP), {network: blue}: bare(fmt.Sprintf(f.networks[2], 3)),
			{egressIP: true, network: blue}: bare(fmt.Sprintf(f.networks[2], 3)),
		}
		if f.networks[3] != "" {
			addrs[way{network: red}] = bare(fmt.Sprintf(f.networks[3], 3))
		}
		for _, c := range [][2]way{
			{{egressIP: true}, {egressIP: true, network: blue}}, {{}, {network: blue}}, {{network: blue}, {}},
			{{}, {network: red}}, {{network: red}, {}}, {{network: blue}, {network: red}}, {{network: red}, {network: blue}},
			{{egressIP: true}, {network: blue}}, {{egressIP: true, network: blue}, {egressIP: true}},
		} {
			if f.networks[3] == "" && (c[0].network == red || c[1].network == red) {
				continue
			}
			client := w.socket(w.pods, pod, 0)
			seen := func() (from netip.AddrPort) {
				t.Helper()
				eventually.True(t, "a packet of "+f.pod, func() bool {
					sent++
					if _, err := client.WriteTo([]byte{sent}, server.LocalAddr()); err != nil {
						t.Fatal(err)
					}
					if err := server.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
						t.Fatal(err)
					}
					for { // earlier packets may still have been on their way
						var err error
						text := make([]byte, 1)
						if _, from, err = server.ReadFromUDPAddrPort(text); err != nil || text[0] == sent {
							return err == nil
						}
					}
				})
				return from
			}
			w.lead(f, c[0].egressIP, c[0].network)
			if got := seen().Addr(); got != addrs[c[0]] {
				t.Fatalf("%+v: at first the pod has the address %s, want %s", c[0], got, addrs[c[0]])
			}
			w.lead(f, c[1].egressIP, c[1].network)
			flush := func() int {
				t.Helper()
				n, err := conntrack.FlushRouted(t.Context(), topology.ManagementPort, topology.Families, func(src, _ netip.Addr) bool { return src == pod })
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			flush()
			if got := seen().Addr(); got != addrs[c[1]] {
				t.Errorf("%+v, then %+v: the connection has the address %s, want %s", c[0], c[1], got, addrs[c[1]])
			}
			if n := flush(); n > 0 {
				t.Errorf("%+v, then %+v: %d connections with the right address were deleted", c[0], c[1], n)
			}
		}
	}
}
