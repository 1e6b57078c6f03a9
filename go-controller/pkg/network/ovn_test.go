package network_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/ovsdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/network"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/ovntrace"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// lab is two nodes in a real OVN control plane, with pods a1 and a2 on node a
// and b1 on node b.
type lab struct {
	t      *testing.T
	ovn    *ovntrace.OVN
	writer *ovsdb.Writer
	config network.Config
	nodes  []topology.Node
}

// node returns the i-th node of a lab.
func node(k family, mode topology.GatewayMode, i int) topology.Node {
	name := string(rune('a' + i))
	addrs := keepPrefixes(k, fmt.Sprintf("172.18.0.%d/16", i+2), fmt.Sprintf("fc00:f853:ccd:e793::%d/64", i+2))
	return topology.Node{
		Name:          name,
		Subnets:       keepPrefixes(k, fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i+1)),
		Join:          keepPrefixes(k, fmt.Sprintf("100.64.0.%d/16", i+2), fmt.Sprintf("fd98::%d/64", i+2)),
		Chassis:       "chassis-" + name,
		ManagementMAC: fmt.Sprintf("0a:58:0a:f4:%02x:02", i),
		Primary:       addrs,
		Gateway: topology.Gateway{
			Mode: mode, InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("02:42:ac:12:00:%02x", i+2),
			Addrs: addrs, NextHops: keepAddrs(k, "172.18.0.1", "fc00:f853:ccd:e793::1"),
		},
	}
}

// pods are name, node and host number of the pods of a lab.
var pods = map[string][2]int{"a1": {0, 3}, "a2": {0, 4}, "b1": {1, 3}}

func newLab(t *testing.T, k family, mode topology.GatewayMode, change ...func(*network.Config)) *lab {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := &lab{t: t, ovn: ovntrace.Start(t), config: config(k), nodes: []topology.Node{node(k, mode, 0), node(k, mode, 1)}}
	for _, f := range change {
		f(&l.config)
	}
	client, err := ovsdb.Connect(ctx, ovsdb.Config{Address: l.ovn.NB.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	l.writer = ovsdb.NewWriter(client)
	for i, n := range l.nodes {
		l.ovn.Chassis(n.Chassis, fmt.Sprintf("172.18.0.%d", i+2))
	}
	l.apply()
	for name, at := range pods {
		n := l.nodes[at[0]]
		l.ovn.NB.Nbctl("lsp-add", n.Name, name, "--", "lsp-set-addresses", name,
			network.PortAddresses(podMAC(at), podPrefixes(n, at[1])))
	}
	l.ovn.Sync()
	for name, at := range pods {
		l.ovn.Bind(name, l.nodes[at[0]].Chassis)
	}
	for _, n := range l.nodes {
		l.ovn.Bind("cr-"+topology.RouterToSwitch(n.Name), n.Chassis)
		l.ovn.Bind(topology.ManagementLSP(n.Name), n.Chassis)
		for _, hop := range n.Gateway.NextHops {
			l.learn(n, hop, "02:42:00:00:00:01")
		}
		for _, other := range l.nodes {
			for _, p := range other.Gateway.Addrs {
				l.learn(n, p.Addr(), other.Gateway.MAC)
			}
		}
	}
	return l
}

// apply writes all rows twice; the second time nothing may be written, even after northd
// has processed the rows.
func (l *lab) apply() {
	l.t.Helper()
	assigned := map[string]network.Assignment{}
	for _, n := range l.nodes {
		assigned[n.Name] = network.Assignment{Subnets: n.Subnets, Join: n.Join}
	}
	for _, again := range []bool{false, true} {
		stats, err := l.writer.Apply(l.t.Context(), network.Owner(""), network.ClusterRows(l.config, assigned))
		if err != nil || again && !stats.Zero() {
			l.t.Fatalf("apply the cluster's rows (again: %v): %+v, %v", again, stats, err)
		}
		for _, n := range l.nodes {
			stats, err := l.writer.Apply(l.t.Context(), network.Owner(n.Name), network.NodeRows(l.config, n))
			if err != nil || again && !stats.Zero() {
				l.t.Fatalf("apply the rows of %s (again: %v): %+v, %v", n.Name, again, stats, err)
			}
		}
		l.ovn.Sync()
	}
}

// learn teaches the gateway router of a node the MAC address of a neighbor.
func (l *lab) learn(n topology.Node, neighbour netip.Addr, mac string) {
	l.t.Helper()
	datapath := strings.TrimSpace(l.ovn.Sbctl("--bare", "--columns=_uuid", "find", "Datapath_Binding",
		"external_ids:name="+topology.GatewayRouter(n.Name)))
	l.ovn.Sbctl("create", "MAC_Binding", "logical_port="+topology.GatewayToExternal(n.Name),
		fmt.Sprintf("ip=%q", neighbour.String()), fmt.Sprintf("mac=%q", mac), "datapath="+datapath)
}

func podMAC(at [2]int) string { return fmt.Sprintf("0a:58:0a:f4:%02x:%02x", at[0], at[1]) }

func podPrefixes(n topology.Node, host int) (out []netip.Prefix) {
	for _, s := range n.Subnets {
		out = append(out, netip.PrefixFrom(topology.NthAddr(s, uint64(host)), s.Bits()))
	}
	return out
}

// send returns a summary of where a TCP packet from a pod to dst ends.
func (l *lab) send(pod string, f topology.Family, dst string) string {
	l.t.Helper()
	at := pods[pod]
	n := l.nodes[at[0]]
	src, _ := topology.PrefixOf(f, podPrefixes(n, at[1]))
	routerMAC := strings.TrimSpace(l.ovn.NB.Nbctl("--bare", "get", "Logical_Router_Port", topology.RouterToSwitch(n.Name), "mac"))
	to := l.macOf(dst)
	if to == "" {
		to = strings.Trim(routerMAC, `"`)
	}
	return l.ovn.Trace(n.Name, fmt.Sprintf(
		"inport == %q && eth.src == %s && eth.dst == %s && %s.src == %s && %s.dst == %s && ip.ttl == 64 && tcp && tcp.src == 40000 && tcp.dst == 80",
		pod, podMAC(at), to, f.Match(), src.Addr(), f.Match(), dst), "--minimal", "--ct", "new")
}

// macOf returns the destination MAC address of packets to dst: that of a pod if dst is in a
// subnet of the first node, where the sender is.
func (l *lab) macOf(dst string) string {
	a := netip.MustParseAddr(dst)
	if s, ok := topology.PrefixOf(topology.FamilyOf(a), l.nodes[0].Subnets); ok && s.Contains(a) {
		b := a.AsSlice()
		return podMAC([2]int{0, int(b[len(b)-1])})
	}
	return ""
}

func TestPacketsInOVN(t *testing.T) {
	type packet struct {
		what, to4, to6 string
		want           []string // in the trace, in this order; NODE is the sender's node
		wantNot        string
	}
	shared := []packet{
		{"pod on the same node", "10.244.0.4", "fd00:10:244:1::4", []string{`output("a2")`}, "ip.ttl"},
		{"pod on the other node", "10.244.1.3", "fd00:10:244:2::3", []string{"ip.ttl--", `output("b1")`}, "ct_snat"},
		{"own node", "172.18.0.2", "fc00:f853:ccd:e793::2", []string{"0a:58:0a:f4:00:02", `output("k8s-a")`}, "ct_snat"},
		{"other node", "172.18.0.3", "fc00:f853:ccd:e793::3", []string{"eth.dst = 02:42:ac:12:00:03", "ct_snat(IP.src=NODE)", `output("breth0_a")`}, "k8s-"},
		{"outside", "8.8.8.8", "2001:db8::8", []string{"eth.dst = 02:42:00:00:00:01", "ct_snat(IP.src=NODE)", `output("breth0_a")`}, "k8s-"},
		{"management port of the other node", "10.244.1.2", "fd00:10:244:2::2", []string{`output("k8s-b")`}, "ct_snat"},
		{"address in no node's subnet", "10.244.9.9", "fd00:10:244:9::9", nil, "eth.dst = "},
		{"address of no Service", "10.96.0.99", "fd00:10:96::99", nil, "eth.dst = "},
	}
	local := append([]packet{}, shared...)
	local[3] = packet{"other node", "172.18.0.3", "fc00:f853:ccd:e793::3", []string{"0a:58:0a:f4:00:02", `output("k8s-a")`}, "ct_snat"}
	local[4] = packet{"outside", "8.8.8.8", "2001:db8::8", []string{"0a:58:0a:f4:00:02", `output("k8s-a")`}, "ct_snat"}
	for _, tt := range []struct {
		name    string
		keep    family
		mode    topology.GatewayMode
		packets []packet
	}{
		{"dual-shared", dual, topology.GatewayShared, shared},
		{"dual-local", dual, topology.GatewayLocal, local},
		{"ipv4-shared", only4, topology.GatewayShared, shared},
		{"ipv6-local", only6, topology.GatewayLocal, local},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, tt.keep, tt.mode)
			for _, f := range topology.Families {
				if !tt.keep(f) {
					continue
				}
				own, _ := topology.PrefixOf(f, l.nodes[0].Primary)
				for _, p := range tt.packets {
					to := map[topology.Family]string{topology.IPv4: p.to4, topology.IPv6: p.to6}[f]
					trace := l.send("a1", f, to)
					rest := trace
					for _, w := range p.want {
						w = strings.NewReplacer("NODE", own.Addr().String(), "IP", f.Match()).Replace(w)
						_, after, ok := strings.Cut(rest, w)
						if !ok {
							t.Errorf("to %s (%s): no %s at its place in\n%s", p.what, to, w, trace)
							break
						}
						rest = after
					}
					if strings.Contains(trace, p.wantNot) {
						t.Errorf("to %s (%s): there is %s in\n%s", p.what, to, p.wantNot, trace)
					}
				}
			}
		})
	}
}

// The database has the documented content, and is empty when everything is removed.
func TestDatabaseReadsLikeTheDocuments(t *testing.T) {
	l := newLab(t, dual, topology.GatewayShared, func(c *network.Config) { c.GatewayMTU = 1400 })
	l.nodes[1].Gateway.VLAN = 42
	l.nodes[1].Chassis = "chassis-c"
	l.ovn.Chassis("chassis-c", "172.18.0.9")
	l.apply()
	var out strings.Builder
	for _, args := range [][]string{
		{"lr-policy-list", topology.ClusterRouter}, {"lr-route-list", topology.ClusterRouter},
		{"lr-route-list", "GR_a"}, {"lr-nat-list", "GR_a"}, {"static-mac-binding-list"},
		{"lrp-get-gateway-chassis", "rtos-a"}, {"lrp-get-gateway-chassis", "rtos-b"},
		{"lsp-get-type", "breth0_b"}, {"get", "Logical_Switch_Port", "breth0_b", "tag_request"},
		{"get", "Logical_Router", "GR_a", "options"}, {"get", "Logical_Switch", "a", "other_config"},
	} {
		fmt.Fprintf(&out, "# ovn-nbctl %s\n%s\n", strings.Join(args, " "), l.ovn.NB.Nbctl(args...))
	}
	golden.Check(t, "ovn-nbctl", out.String())
	if tag := strings.TrimSpace(l.ovn.Sbctl("--bare", "--columns=tag", "find", "Port_Binding", "logical_port=breth0_b")); tag != "42" {
		t.Errorf("northd gives the localnet port VLAN %q, want 42", tag)
	}
	for _, name := range []string{"a", "b", ""} {
		if _, err := l.writer.Apply(t.Context(), network.Owner(name), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{
		"Logical_Router", "Logical_Switch", "Logical_Switch_Port", "Logical_Router_Port", "Logical_Router_Static_Route",
		"Logical_Router_Policy", "NAT", "Gateway_Chassis", "Static_MAC_Binding", "Load_Balancer_Group", "ACL",
	} {
		if left := l.ovn.NB.Nbctl("--bare", "--columns=_uuid", "list", table); strings.TrimSpace(left) != "" {
			t.Errorf("left over in %s: %s", table, left)
		}
	}
}

// TestResetsArrive: a node's resets for forgotten connections reach pods, also on other nodes, and
// no other packets without a connection do.
func TestResetsArrive(t *testing.T) {
	l := newLab(t, dual, topology.GatewayShared)
	for _, n := range l.nodes { // only with load balancers OVN tracks connections
		l.ovn.NB.Nbctl("--may-exist", "lb-add", "lb", "10.96.0.5:80", "10.244.0.3:80", "--", "ls-lb-add", n.Name, "lb")
	}
	for _, f := range topology.Families {
		server := map[topology.Family]string{topology.IPv4: "8.8.8.8", topology.IPv6: "2001:db8::8"}[f]
		pod, _ := topology.PrefixOf(f, podPrefixes(l.nodes[1], 3))
		for mark, want := range map[int]bool{0: false, topology.MarkPodToNode: false, topology.MarkReset: true} {
			// The node's port does not know the connection, the pod's does.
			known := []string{"--ct", "inv", "--ct", "est,rpl"}
			if want { // only the latter is checked
				known = []string{"--ct", "est,rpl", "--ct", "inv"}
			}
			trace := l.ovn.Trace("a", fmt.Sprintf(
				"inport == %q && eth.src == %s && eth.dst == %s && %s.src == %s && %s.dst == %s && ip.ttl == 64 && tcp && tcp.flags == 4 && tcp.src == 80 && tcp.dst == 40000 && pkt.mark == %d",
				topology.ManagementLSP("a"), l.nodes[0].ManagementMAC, topology.RouterMAC(l.nodes[0].Subnets), f.Match(), server, f.Match(), pod.Addr(), mark),
				append(known, "--minimal")...)
			if got := strings.Contains(trace, `output("b1")`); got != want {
				t.Errorf("%s: with mark %d it arrives: %v, want %v\n%s", f, mark, got, want, trace)
			}
		}
	}
}

// TestNextHopIsLearnt: a next hop's reply to the host of a node, whose MAC address the
// gateway router shares, teaches that router the next hop's MAC address.
func TestNextHopIsLearnt(t *testing.T) {
	l := newLab(t, dual, topology.GatewayShared)
	to := l.nodes[0].Gateway.MAC
	const from = "02:42:00:00:00:09"
	for answer, want := range map[string]string{
		fmt.Sprintf(`eth.dst == %s && arp.op == 2 && arp.spa == 172.18.0.9 && arp.tpa == 172.18.0.2 && arp.sha == %s && arp.tha == %[1]s`, to, from): "put_arp(",
		fmt.Sprintf(`eth.dst == %s && ip6.src == fc00:f853:ccd:e793::9 && ip6.dst == fc00:f853:ccd:e793::2 && ip.ttl == 255 && icmp6.type == 136 && icmp6.code == 0 &&
			nd.target == fc00:f853:ccd:e793::9 && nd.tll == %s`, to, from): "put_nd(",
	} {
		trace := l.ovn.Trace("ext_a", fmt.Sprintf(`inport == "breth0_a" && eth.src == %s && `, from)+answer)
		if !strings.Contains(trace, want) {
			t.Errorf("no %s in\n%s", want, trace)
		}
	}
}
