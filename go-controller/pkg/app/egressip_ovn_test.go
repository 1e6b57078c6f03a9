package app

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/externalroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/noreroute"
	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// tracing is a control plane of OVN with three nodes, as the planners of the base network create
// them: b and c may hold egress addresses. Pod web runs on a and on b.
type tracing struct {
	t      *testing.T
	ovn    *ovntrace.OVN
	writer *ovsdb.Writer
	nodes  []topology.Node
}

func newTracing(t *testing.T, mode topology.GatewayMode) *tracing {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := &tracing{t: t, ovn: ovntrace.Start(t)}
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: l.ovn.NB.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	l.writer = ovsdb.NewWriter(client)
	assigned := map[string]network.Assignment{}
	for i, name := range []string{"a", "b", "c"} {
		primary := prefixesOf(fmt.Sprintf("172.18.0.%d/16", i+2), fmt.Sprintf("fc00:f853:ccd:e793::%d/64", i+2))
		n := topology.Node{
			Name: name, Ready: true, EgressAssignable: name != "a", Chassis: "chassis-" + name,
			Subnets:       prefixesOf(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i+1)),
			Join:          prefixesOf(fmt.Sprintf("100.64.0.%d/16", i+2), fmt.Sprintf("fd98::%d/64", i+2)),
			ManagementMAC: fmt.Sprintf("0a:58:0a:f4:%02x:02", i),
			Primary:       primary,
			Host:          append(slices.Clone(primary), prefixesOf(fmt.Sprintf("172.19.0.%d/24", i+2))...),
			Gateway: topology.Gateway{Mode: mode, InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("02:42:ac:12:00:%02x", i+2),
				Addrs: primary, NextHops: []netip.Addr{netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("fc00:f853:ccd:e793::1")}},
		}
		l.nodes = append(l.nodes, n)
		assigned[name] = network.Assignment{Subnets: n.Subnets, Join: n.Join}
		l.ovn.Chassis(n.Chassis, fmt.Sprintf("172.18.0.%d", i+2))
	}
	c := network.Config{JoinSubnets: prefixesOf("100.64.0.0/16", "fd98::/64"), ClusterSubnets: []network.ClusterSubnet{
		{CIDR: netip.MustParsePrefix("10.244.0.0/16"), HostPrefixLen: 24}, {CIDR: netip.MustParsePrefix("fd00:10:244::/48"), HostPrefixLen: 64}}}
	l.apply(network.Owner(""), network.ClusterRows(c, assigned))
	for _, n := range l.nodes {
		l.apply(network.Owner(n.Name), network.NodeRows(c, n))
	}
	for i, n := range l.nodes {
		l.ovn.NB.Nbctl("lsp-add", n.Name, "web-"+n.Name, "--", "lsp-set-addresses", "web-"+n.Name,
			fmt.Sprintf("%s 10.244.%d.3 fd00:10:244:%d::3", webMAC(i), i, i+1))
	}
	l.ovn.Sync()
	for _, n := range l.nodes {
		l.ovn.Bind("web-"+n.Name, n.Chassis)
		l.ovn.Bind("cr-"+topology.RouterToSwitch(n.Name), n.Chassis)
		l.ovn.Bind(topology.ManagementLSP(n.Name), n.Chassis)
		for _, hop := range n.Gateway.NextHops {
			l.learn(n, hop, routerMAC)
		}
		for _, other := range l.nodes {
			for _, p := range other.Primary {
				l.learn(n, p.Addr(), other.Gateway.MAC)
			}
		}
	}
	return l
}

func webMAC(node int) string { return fmt.Sprintf("0a:58:0a:f4:%02x:03", node) }

// webAddrs are the addresses of the pod on the i-th node.
func webAddrs(i int) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.%d.3", i)), netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::3", i+1))}
}

func (l *tracing) apply(o nb.Owner, rows []nb.Row) {
	l.t.Helper()
	if _, err := l.writer.Apply(l.t.Context(), o, rows); err != nil {
		l.t.Fatal(err)
	}
}

// learn makes the gateway router of a node know the MAC address of a neighbour.
func (l *tracing) learn(n topology.Node, neighbour netip.Addr, mac string) {
	l.t.Helper()
	datapath := strings.TrimSpace(l.ovn.Sbctl("--bare", "--columns=_uuid", "find", "Datapath_Binding",
		"external_ids:name="+topology.GatewayRouter(n.Name)))
	l.ovn.Sbctl("create", "MAC_Binding", "logical_port="+topology.GatewayToExternal(n.Name),
		fmt.Sprintf("ip=%q", neighbour.String()), fmt.Sprintf("mac=%q", mac), "datapath="+datapath)
}

// nodeAddrs returns the addresses of nodes.
func nodeAddrs(nodes []topology.Node) []netip.Addr {
	var addrs []netip.Addr
	for _, n := range nodes {
		addrs = append(addrs, externalroute.NodeAddrs(n)...)
	}
	return addrs
}

// noReroute writes the shared policies for these pods of EgressIPs and of EgressServices.
func (l *tracing) noReroute(ip, service []netip.Addr) {
	l.t.Helper()
	n := noreroute.Network{Cluster: prefixesOf("10.244.0.0/16", "fd00:10:244::/48"), Join: prefixesOf("100.64.0.0/16", "fd98::/64"), NodeLocal: labNodeLocal}
	for set, addrs := range map[noreroute.Set][]netip.Addr{
		noreroute.EgressIPPods: ip, noreroute.EgressServicePods: service,
	} {
		l.apply(set.Owner(), noreroute.SetRows(n, set, addrs))
	}
	l.apply(noreroute.NodeIPs.Owner(), noreroute.NodeRows(n, nodeAddrs(l.nodes)))
	l.apply(noreroute.PolicyOwner, noreroute.PolicyRows(n))
}

// serve makes an EgressIP with these addresses select the pods on a and b, in its final state, and
// returns its decision.
func (l *tracing) serve(ips ...v1.Address) egressip.Decision {
	l.t.Helper()
	e := &v1.EgressIP{}
	e.Name, e.Spec.EgressIPs = "egressip-prod", ips
	nodes := make([]place.Node, 0, len(l.nodes))
	for _, n := range l.nodes {
		nodes = append(nodes, place.Node{Node: n, Reach: place.Alive})
	}
	d := egressip.Decide(nodes, []egressip.EgressIP{egressip.Decode(e)}, egressip.Network{})[e.Name]
	for _, item := range d.Items() {
		e.Status.Programmed = append(e.Status.Programmed, v1.ProgrammedStatus{Node: item.Node, EgressIPs: []string{item.EgressIP},
			Digest: egressip.Digest(addrsOf(item.EgressIP), nil)})
	}
	for i := range 2 {
		plan := egressip.Steering{
			EgressIP: egressip.Decode(e), Pod: egressip.Pod{Addrs: webAddrs(i), Pending: true},
			Paths: d.Paths(e.Status, webAddrs(i), func(given []netip.Addr) string { return egressip.Digest(given, nil) },
				func(string) (topology.Node, bool) { return topology.Node{}, false }), Now: egressip.NewState(), Applied: egressip.NewState(),
			Owned: func(string, netip.Addr) bool { return true },
		}.Plan()
		l.apply(egressip.Owner(fmt.Sprintf("prod/web-%d", i)), plan.Want.Rows())
	}
	return d
}

// wayOut finds what happens to a leaving packet in a trace.
var wayOut = regexp.MustCompile(`ct_snat\(ip[46]\.src=([0-9a-f.:]+)\)|output\("([^"]+)"\)|pkt\.mark = (1008)`)

// send returns where a packet of the pod on the i-th node comes out, and with which address and
// mark: "172.18.0.33 breth0_b".
func (l *tracing) send(i int, dst string) string {
	l.t.Helper()
	to, n := netip.MustParseAddr(dst), l.nodes[i]
	family := topology.FamilyOf(to)
	src, _ := topology.AddrOf(family, webAddrs(i))
	mac := strings.Trim(strings.TrimSpace(l.ovn.NB.Nbctl("--bare", "get", "Logical_Router_Port", topology.RouterToSwitch(n.Name), "mac")), `"`)
	trace := l.ovn.Trace(n.Name, fmt.Sprintf(
		"inport == %q && eth.src == %s && eth.dst == %s && %[4]s.src == %[5]s && %[4]s.dst == %[6]s && ip.ttl == 64 && tcp && tcp.src == 40000 && tcp.dst == 80",
		"web-"+n.Name, webMAC(i), mac, family.Match(), src, to), "--minimal", "--ct", "new")
	var out []string
	for _, m := range wayOut.FindAllStringSubmatch(trace, -1) {
		out = append(out, m[1]+m[2]+m[3])
	}
	if len(out) == 0 {
		l.t.Logf("from %s to %s:\n%s", n.Name, dst, trace)
	}
	return strings.Join(out, " ")
}

func (l *tracing) expect(i int, dst string, want ...string) {
	l.t.Helper()
	if got := l.send(i, dst); !slices.Contains(want, got) {
		l.t.Errorf("from %s to %s: %q, want one of %q", l.nodes[i].Name, dst, got, want)
	}
}

// TestEgressIPOnOVN asks OVN where packets go: to the egress nodes, where they get the egress
// address; within the cluster and to nodes as without an EgressIP; and to the host of an
// EgressService if it has the pod.
func TestEgressIPOnOVN(t *testing.T) {
	for _, mode := range []topology.GatewayMode{topology.GatewayShared, topology.GatewayLocal} {
		t.Run(string(mode), func(t *testing.T) {
			l := newTracing(t, mode)
			l.noReroute(slices.Concat(webAddrs(0), webAddrs(1)), nil)
			out := func(i int, family topology.Family) string {
				own, _ := topology.PrefixOf(family, l.nodes[i].Primary)
				if mode == topology.GatewayLocal {
					return "k8s-" + l.nodes[i].Name
				}
				return own.Addr().String() + " breth0_" + l.nodes[i].Name
			}
			marked := func(i int, family topology.Family) string {
				return "1008 " + out(i, family)
			}

			d := l.serve("172.18.0.33", "172.18.0.44", "fc00:f853:ccd:e793::33")
			at := d.Nodes()
			both := []string{}
			for _, ip := range []string{"172.18.0.33", "172.18.0.44"} {
				both = append(both, ip+" breth0_"+at[netip.MustParseAddr(ip)])
			}
			six := "fc00:f853:ccd:e793::33 breth0_" + at[netip.MustParseAddr("fc00:f853:ccd:e793::33")]
			for i := range 2 {
				l.expect(i, "8.8.8.8", both...)
				l.expect(i, "2001:db8::8", six)
				// East-west.
				l.expect(i, "10.244.2.3", "web-c")
				l.expect(i, "fd00:10:244:3::3", "web-c")
				l.expect(i, "10.244.2.2", "k8s-c")
				// To the own node by the management port, to another one marked.
				l.expect(i, "172.18.0."+fmt.Sprint(i+2), "k8s-"+l.nodes[i].Name)
				l.expect(i, "172.18.0.4", egressNodeOrMarked(i, at, marked(i, topology.IPv4))...)
				l.expect(i, "172.19.0.4", egressNodeOrMarked(i, at, marked(i, topology.IPv4))...)
			}
			l.expect(2, "8.8.8.8", out(2, topology.IPv4))

			// The host of an EgressService takes precedence.
			host := l.nodes[2]
			s := egressservice.Service{Key: "prod/svc", Endpoints: []egressservice.Endpoint{{Addr: webAddrs(0)[0]}}}
			l.apply(egressservice.Owner(s.Key), egressservice.MasterRows(s, egressservice.Decision{Host: host.Name, NextHops: host.ManagementAddrs()}))
			l.expect(0, "8.8.8.8", "k8s-c")
			l.expect(1, "8.8.8.8", both...)
			l.apply(egressservice.Owner(s.Key), nil)

			// An IPv4 address does not affect IPv6; for a secondary network packets leave by the
			// management port of the egress node.
			d = l.serve("172.19.0.33")
			for i := range 2 {
				l.expect(i, "8.8.8.8", "k8s-"+d.Placements[0].Node)
				l.expect(i, "2001:db8::8", out(i, topology.IPv6))
			}
		})
	}
}

// egressNodeOrMarked returns what may happen to a packet to another node: it is marked, so that the
// bridge gives it its node's address, whatever the gateway router, which does not see the mark, has
// done with it.
func egressNodeOrMarked(i int, at map[netip.Addr]string, marked string) []string {
	want := []string{marked}
	for ip, node := range at {
		if ip.Is4() && node == string(rune('a'+i)) {
			want = append(want, "1008 "+ip.String()+" breth0_"+node)
		}
	}
	return want
}
