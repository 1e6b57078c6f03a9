package node

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/openflow"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/ovs"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// wires is a bridge with the flows of a node through which packets go, and which tracks their
// connections.
type wires struct {
	*testing.T
	ns    *netnstest.NS
	vs    *netnstest.OVS
	ports map[string]string // number by name: wire, ovn, host
}

// newWires creates the external bridge, with additional flows.
func newWires(t *testing.T, more ...host.Flow) *wires {
	t.Helper()
	marks := bridge.DefaultMarks(topology.ConntrackZone)
	for _, f := range families {
		more = append(more, bridge.Marked(f, marks)...)
	}
	return newBridge(t, more...)
}

// newBridge creates a bridge with the flows that all external bridges have, and additional ones.
func newBridge(t *testing.T, more ...host.Flow) *wires {
	t.Helper()
	ns := netnstest.New(t)
	vs := ns.OVS()
	ns.Run("sysctl", "-w", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1") // so that the links send nothing by themselves
	ns.Veth("eth0", "far0")
	ns.Veth("patch", "ovn0")
	vs.Run("ovs-vsctl", "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev",
		"--", "add-port", "breth0", "eth0", "--", "add-port", "breth0", "patch")
	for _, link := range []string{"eth0", "far0", "patch", "ovn0", "breth0"} {
		ns.Run("ip", "link", "set", link, "up")
	}
	db := ovs.New(t.Context(), vs.Endpoint())
	numbered(t, db, "breth0", "eth0", "patch")
	m := New([]string{base}, db, func(name string) Writer { return openflow.New(name, vs.Dir) })
	all := slices.Concat(bridge.CommonFlows(at.Facts), more)
	for _, f := range families {
		marks := bridge.DefaultMarks(topology.ConntrackZone)
		all = slices.Concat(all, bridge.Flows(at.Facts, f, marks))
	}
	if err := errors.Join(m.Apply(t.Context(), base, all), m.Attach(t.Context(), at)); err != nil {
		t.Fatal(err)
	}
	w := &wires{T: t, ns: ns, vs: vs, ports: map[string]string{"host": "LOCAL"}}
	for name, link := range map[string]string{"wire": "eth0", "ovn": "patch"} {
		w.ports[name] = vs.Run("ovs-vsctl", "get", "interface", link, "ofport")
	}
	return w
}

// TestFlowsReadAsWritten: the bridge reports the flows exactly as they were written, in every
// detail: otherwise they would be rewritten again and again.
func TestFlowsReadAsWritten(t *testing.T) {
	w := newBridge(t)
	ports := strings.NewReplacer(bridge.Uplink, w.ports["wire"], bridge.Patch, w.ports["ovn"])
	marks := bridge.DefaultMarks(topology.ConntrackZone)
	for _, vlan := range []int{0, 7} {
		b := at.Facts
		b.VLAN = vlan
		all := slices.Concat(bridge.CommonFlows(b), bridge.Suppression(b))
		for _, f := range families {
			all = slices.Concat(all, bridge.Flows(b, f, marks), bridge.Marked(f, marks), bridge.ServicePort(f, marks))
			for _, protocol := range []string{"tcp", "udp", "sctp"} {
				all = append(all, bridge.IngressFlows(b, bridge.Ingress{To: netip.AddrPortFrom(f.Node, 5060), Protocol: protocol}, marks)...)
			}
			all = append(all, bridge.SuppressARP(f.Node, true))
		}
		var text strings.Builder
		for _, f := range all {
			text.WriteString(ports.Replace(string(f)) + "\n")
		}
		file := filepath.Join(t.TempDir(), "flows")
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		target := "unix:" + w.vs.Dir + "/breth0.mgmt"
		w.vs.Run("ovs-ofctl", "-OOpenFlow14", "replace-flows", target, file)
		if out, err := w.vs.Try("ovs-ofctl", "-OOpenFlow14", "diff-flows", target, file); err != nil || out != "" {
			t.Errorf("VLAN %d: differs: %v\n%s", vlan, err, out)
		}
	}
}

// packet returns a packet between two sockets.
func packet(protocol string, from, to netip.AddrPort, more ...string) string {
	source, family := "nw", ""
	if from.Addr().Is6() {
		source, family = "ipv6", "6"
	}
	text := fmt.Sprintf("%s%s,dl_src=02:00:00:00:00:99,dl_dst=02:00:00:00:00:01,%s_src=%s,%s_dst=%s,nw_ttl=64",
		protocol, family, source, from.Addr(), source, to.Addr())
	if protocol == "tcp" || protocol == "udp" {
		text += fmt.Sprintf(",%[1]s_src=%[2]d,%[1]s_dst=%[3]d", protocol, from.Port(), to.Port())
	}
	return strings.Join(append([]string{text}, more...), ",")
}

// send sends a packet into the bridge and returns where it came out; mark is the packet mark set by
// OVN.
func (w *wires) send(from, packet string, mark int) []string {
	w.Helper()
	before := w.sent()
	w.out(w.ports[from], packet, fmt.Sprintf("set_field:%#x->pkt_mark,resubmit(,0)", mark))
	after := w.sent()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.ports)) {
		if after[name] > before[name] {
			out = append(out, name)
		}
	}
	return out
}

// out executes actions on a packet that comes from a port.
func (w *wires) out(port, packet, actions string) {
	w.Helper()
	bytes := ""
	for line := range strings.Lines(w.vs.Run("ovs-ofctl", "compose-packet", packet)) {
		_, hex, _ := strings.Cut(line, " ") // after the offset
		bytes += strings.NewReplacer(" ", "", "-", "", "\n", "").Replace(hex)
	}
	w.vs.Run("ovs-ofctl", "packet-out", "breth0", fmt.Sprintf("in_port=%s packet=%s actions=%s", port, bytes, actions))
}

// sent counts the packets that flows have sent to ports, by name: packets that the host itself
// sends on the links do not count.
func (w *wires) sent() map[string]int {
	w.Helper()
	counts := map[string]int{}
	port := ""
	for line := range strings.Lines(w.vs.Run("ovs-ofctl", "--no-names", "dump-ports", "breth0")) {
		if number, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "port "), ": rx"); ok {
			port = strings.TrimSpace(number)
		}
		_, tx, ok := strings.Cut(line, "tx pkts=")
		if !ok {
			continue
		}
		n := 0
		if _, err := fmt.Sscanf(tx, "%d", &n); err != nil {
			w.Fatalf("port %s: %s", port, line)
		}
		for name, number := range w.ports {
			if number == port {
				counts[name] = n
			}
		}
	}
	if len(counts) != len(w.ports) {
		w.Fatalf("ports %v", counts)
	}
	return counts
}

func (w *wires) goes(what, from, packet string, mark int, want ...string) {
	w.Helper()
	if got := w.send(from, packet, mark); !slices.Equal(got, want) {
		w.Errorf("%s goes to %v, want %v\n%s\n%s", what, got, want, packet, strings.Join(w.vs.FlowsByName("breth0"), "\n"))
	}
}

// TestServicePortAsSource: whoever opens a connection from an address and port of a Service gets
// the answers, and clients of the Service reach its endpoints.
func TestServicePortAsSource(t *testing.T) {
	cases := []struct{ lb, peer, client netip.AddrPort }{
		{netip.MustParseAddrPort("5.5.5.5:5060"), netip.MustParseAddrPort("172.18.0.100:5060"), netip.MustParseAddrPort("172.18.0.101:40000")},
		{netip.MustParseAddrPort("[fd05::5]:5060"), netip.MustParseAddrPort("[fc00::100]:5060"), netip.MustParseAddrPort("[fc00::101]:40000")},
	}
	protocols := map[string][3][]string{ // flags of a request, its answer and the next segment
		"udp": {}, "tcp": {{"tcp_flags=0x002"}, {"tcp_flags=0x012"}, {"tcp_flags=0x010"}},
	}
	var flows []host.Flow
	for _, c := range cases {
		for protocol := range protocols {
			flows = append(flows, bridge.IngressFlows(at.Facts, bridge.Ingress{To: c.lb, Protocol: protocol}, bridge.DefaultMarks(topology.ConntrackZone))...)
		}
	}
	w := newWires(t, flows...)
	for _, c := range cases {
		for protocol, flags := range protocols {
			w.goes("what the host sends for a pod", "host", packet(protocol, c.lb, c.peer, flags[0]...), 0, "wire")
			w.goes("the answer", "wire", packet(protocol, c.peer, c.lb, flags[1]...), 0, "host")
			w.goes("a client's request", "wire", packet(protocol, c.client, c.lb, flags[0]...), 0, "ovn")
			w.goes("the answer to the client", "ovn", packet(protocol, c.lb, c.client, flags[1]...), 0, "wire")
			w.goes("what the client says next", "wire", packet(protocol, c.client, c.lb, flags[2]...), 0, "ovn")
			through := netip.AddrPortFrom(c.client.Addr(), 40001)
			w.goes("a request through a gateway of the pod", "wire", packet(protocol, through, c.lb, flags[0]...), 0, "ovn")
			w.goes("the answer through the gateway", "ovn", packet(protocol, c.lb, through, flags[1]...), topology.MarkUntranslated, "wire")
			other := netip.AddrPortFrom(c.peer.Addr(), 5061)
			w.goes("a request from another port of who was asked", "wire", packet(protocol, other, c.lb, flags[0]...), 0, "ovn")
		}
	}
}

// TestNarrowedSources: when the source ranges of a Service are narrowed, the host, which drops them, gets the packets of
// the clients that are no longer allowed, also those of their open connections: a client that goes on sending datagrams
// would have access forever. Others keep their connections.
func TestNarrowedSources(t *testing.T) {
	cases := []struct {
		lb, closed, allowed, other netip.AddrPort
		source                     netip.Prefix
	}{
		{netip.MustParseAddrPort("5.5.5.5:5060"), netip.MustParseAddrPort("5.5.5.6:5060"), netip.MustParseAddrPort("172.18.0.100:40000"),
			netip.MustParseAddrPort("172.18.0.101:40000"), netip.MustParsePrefix("172.18.0.100/32")},
		{netip.MustParseAddrPort("[fd05::5]:5060"), netip.MustParseAddrPort("[fd05::6]:5060"), netip.MustParseAddrPort("[fc00::100]:40000"),
			netip.MustParseAddrPort("[fc00::101]:40000"), netip.MustParsePrefix("fc00::100/128")},
	}
	protocols := map[string][3][]string{"udp": {}, "tcp": {{"tcp_flags=0x002"}, {"tcp_flags=0x012"}, {"tcp_flags=0x010"}}}
	marks := bridge.DefaultMarks(topology.ConntrackZone)
	var flows []host.Flow
	for _, c := range cases {
		for protocol := range protocols {
			for _, i := range []bridge.Ingress{{To: c.lb, Protocol: protocol, Sources: []netip.Prefix{c.source}}, {To: c.closed, Protocol: protocol, Closed: true}} {
				flows = append(flows, bridge.IngressFlows(at.Facts, i, marks)...)
			}
		}
	}
	w := newWires(t, flows...)
	for _, c := range cases {
		for protocol, flags := range protocols {
			for _, lb := range []netip.AddrPort{c.lb, c.closed} {
				// As the flows did while the client was allowed.
				w.out(w.ports["wire"], packet(protocol, c.other, lb, flags[0]...), fmt.Sprintf("ct(commit,zone=%d,exec(set_field:%#x->ct_mark))", marks.Zone, marks.OVN))
				w.goes("the answer to a client that is not allowed any more", "ovn", packet(protocol, lb, c.other, flags[1]...), 0, "wire")
				w.goes("what that client says next", "wire", packet(protocol, c.other, lb, flags[2]...), 0, "host")
			}
			w.goes("a client's request", "wire", packet(protocol, c.allowed, c.lb, flags[0]...), 0, "ovn")
			w.goes("the answer to the client", "ovn", packet(protocol, c.lb, c.allowed, flags[1]...), 0, "wire")
			w.goes("what the client says next", "wire", packet(protocol, c.allowed, c.lb, flags[2]...), 0, "ovn")
		}
	}
}

// TestUntranslated: packets with the address of a pod leave only if OVN says that they should.
// Packets that the gateway router could not translate because they belong to no connection are
// dropped and counted.
func TestUntranslated(t *testing.T) {
	w := newWires(t)
	const remote = "10.244.2.3"
	for _, c := range []struct{ pod, peer string }{
		{"10.244.1.3:4000", "172.18.0.100:80"}, {"[fd00:10:244:2::3]:4000", "[fc00::100]:80"},
		{remote + ":4000", "172.18.0.100:80"},
	} {
		pod, peer := netip.MustParseAddrPort(c.pod), netip.MustParseAddrPort(c.peer)
		for what, p := range map[string]string{
			"SYN":              packet("tcp", pod, peer, "tcp_flags=0x002"),
			"reset":            packet("tcp", pod, peer, "tcp_flags=0x014"),
			"a FIN that opens": packet("tcp", pod, peer, "tcp_flags=0x003"),
			"segment":          packet("tcp", pod, peer, "tcp_flags=0x010"),
			"UDP":              packet("udp", pod, peer),
		} {
			w.goes(what+" that nothing has translated", "ovn", p, 0)
		}
		w.goes("the end of a connection that nothing has translated", "ovn", packet("tcp", pod, peer, "tcp_flags=0x011"), 0, "host")
		if c.pod == remote+":4000" {
			w.goes("a part of it", "ovn", packet("tcp", pod, peer, "tcp_flags=0x011", "nw_frag=first"), 0)
		}
		// For a userspace datapath no connection ends without an acknowledgment.
		w.goes("the end of one, to a node", "ovn", packet("tcp", pod, peer, "tcp_flags=0x001"), topology.MarkPodToNode, "host")
		w.goes("what is marked as another's", "ovn", packet("udp", pod, peer), topology.MarkServicePort)
		if c.pod != remote+":4000" {
			w.goes("SYN of a pod with a gateway", "ovn", packet("tcp", pod, peer, "tcp_flags=0x002"), topology.MarkUntranslated, "wire")
			w.goes("its answer", "wire", packet("tcp", peer, pod, "tcp_flags=0x012"), 0, "ovn")
			node := netip.MustParseAddrPort(map[bool]string{true: "172.18.0.3:4000", false: "[fc00::3]:4000"}[pod.Addr().Is4()])
			w.goes("SYN of such a pod that has been translated", "ovn", packet("tcp", node, peer, "tcp_flags=0x002"), topology.MarkUntranslated)
			w.goes("datagram of such a pod that has been translated", "ovn", packet("udp", node, peer), topology.MarkUntranslated)

			// Clients that connect to the pod's address through a gateway get replies, and nobody
			// else does.
			caller, other := netip.AddrPortFrom(peer.Addr(), 4001), netip.AddrPortFrom(peer.Addr(), 4002)
			w.goes("a call", "wire", packet("tcp", caller, pod, "tcp_flags=0x002"), 0, "ovn")
			w.goes("the reply", "ovn", packet("tcp", pod, caller, "tcp_flags=0x012"), 0, "wire")
			w.goes("what the caller says next", "wire", packet("tcp", caller, pod, "tcp_flags=0x010"), 0, "ovn")
			w.goes("what is no reply", "ovn", packet("tcp", pod, other, "tcp_flags=0x012"), 0)
			w.goes("a question", "wire", packet("udp", caller, pod), 0, "ovn")
			w.goes("the answer", "ovn", packet("udp", pod, caller), 0, "wire")
			w.goes("a datagram that is no answer", "ovn", packet("udp", pod, other), 0)
		}
	}
	w.goes("a SYN with the address of the node", "ovn",
		packet("tcp", netip.MustParseAddrPort("172.18.0.3:4000"), netip.MustParseAddrPort("172.18.0.100:80"), "tcp_flags=0x002"), 0, "wire")
}

// TestUntranslatedKinds: the kind of packet does not matter: protocols other than TCP and UDP,
// errors, fragments. Packets to nodes are no exception.
func TestUntranslatedKinds(t *testing.T) {
	w := newWires(t)
	const frame = ",dl_src=02:00:00:00:00:99,dl_dst=02:00:00:00:00:01,nw_ttl=64"
	const to4, to6 = ",nw_dst=172.18.0.100", ",ipv6_dst=fc00::100"
	kinds := map[string]map[string]string{
		",nw_src=10.244.1.3" + to4: {
			"GRE": "ip,nw_proto=47", "ESP": "ip,nw_proto=50", "SCTP": "sctp,sctp_src=4000,sctp_dst=80", "a ping": "icmp,icmp_type=8",
			"an answer to a ping": "icmp,icmp_type=0", "an error": "icmp,icmp_type=3,icmp_code=1",
			"the first part": "udp,udp_src=4000,udp_dst=80,nw_frag=first", "a later part": "udp,nw_frag=later",
		},
		",ipv6_src=fd00:10:244:2::3" + to6: {
			"GRE": "ipv6,nw_proto=47", "SCTP": "sctp6,sctp_src=4000,sctp_dst=80", "a ping": "icmp6,icmpv6_type=128,icmpv6_code=0",
			"an answer to a ping": "icmp6,icmpv6_type=129,icmpv6_code=0", "an error": "icmp6,icmpv6_type=1,icmpv6_code=1",
		},
		",nw_src=10.244.2.3" + to4: {"GRE of another node's pod": "ip,nw_proto=47", "its ping": "icmp,icmp_type=8"},
	}
	for between, packets := range kinds {
		for what, p := range packets {
			w.goes(what, "ovn", p+frame+between, 0)
			if !strings.Contains(between, "10.244.2.3") {
				w.goes(what+" that is for a node", "ovn", p+frame+between, topology.MarkPodToNode)
			}
		}
	}
}

// TestForeign: packets that leave with an egress address of another node are dropped, except
// packets to nodes with the address of this one.
func TestForeign(t *testing.T) {
	for _, c := range []struct{ foreign, moving, held, peer string }{
		{"172.18.0.33:4000", "172.18.0.55:4000", "172.18.0.44:4000", "172.18.0.100:80"},
		{"[fc00::33]:4000", "[fc00::55]:4000", "[fc00::44]:4000", "[fc00::100]:80"},
	} {
		foreign, held, peer := netip.MustParseAddrPort(c.foreign), netip.MustParseAddrPort(c.held), netip.MustParseAddrPort(c.peer)
		moving := netip.MustParseAddrPort(c.moving)
		w := newWires(t, append(bridge.Suppression(at.Facts), bridge.SuppressARP(foreign.Addr(), true), bridge.SuppressARP(moving.Addr(), false))...)
		for _, flags := range []string{"0x002", "0x010", "0x011"} {
			w.goes("what has the address of another node", "ovn", packet("tcp", foreign, peer, "tcp_flags="+flags), 0)
		}
		w.goes("what has an address of this node", "ovn", packet("tcp", held, peer, "tcp_flags=0x002"), 0, "wire")
		w.goes("what has one that is on its way to another node", "ovn", packet("tcp", moving, peer, "tcp_flags=0x002"), 0, "wire")
		w.goes("the answer", "wire", packet("tcp", peer, moving, "tcp_flags=0x012"), 0, "ovn")
		w.goes("what goes to a node", "ovn", packet("tcp", foreign, peer, "tcp_flags=0x002"), topology.MarkPodToNode, "wire")
		for _, to := range []netip.AddrPort{foreign, moving} {
			w.goes("what comes for an address of another node", "wire", packet("tcp", netip.AddrPortFrom(peer.Addr(), 81), to, "tcp_flags=0x002"), 0)
		}
		w.goes("what comes for any other", "wire", packet("tcp", peer, held, "tcp_flags=0x002"), 0, "host")
		flows := openflow.New("breth0", w.vs.Dir)
		packets, err := flows.Packets(t.Context())
		if n := packets[host.FlowLevel{Priority: bridge.PriorityUnsnatted}]; n != 3 || err != nil {
			t.Errorf("%d packets are counted, %v", n, err)
		}
		dump, err := flows.Dump(t.Context())
		_, suppressed := bridge.EgressAddrs(dump)
		slices.SortFunc(suppressed, netip.Addr.Compare)
		if want := []netip.Addr{foreign.Addr(), moving.Addr()}; err != nil || !slices.Equal(suppressed, want) {
			t.Errorf("the bridge suppresses %v, want %v, %v", suppressed, want, err)
		}
	}
}

// TestToNodes: packets of pods with an egress address to nodes leave with the address of their
// node; packets that cannot be translated because they belong to no connection do not leave.
func TestToNodes(t *testing.T) {
	cases := []struct{ node, held, foreign, peer, lb string }{
		{"172.18.0.3:4000", "172.18.0.44:4000", "172.18.0.33:4000", "172.18.0.4:80", "5.5.5.5:80"},
		{"[fc00::3]:4000", "[fc00::44]:4000", "[fc00::33]:4000", "[fc00::4]:80", "[fd05::5]:80"},
	}
	flows := bridge.Suppression(at.Facts)
	for _, c := range cases {
		flows = append(flows, bridge.SuppressARP(netip.MustParseAddrPort(c.foreign).Addr(), true))
		flows = append(flows, bridge.IngressFlows(at.Facts, bridge.Ingress{To: netip.MustParseAddrPort(c.lb), Protocol: "tcp"}, bridge.DefaultMarks(topology.ConntrackZone))...)
	}
	w := newWires(t, flows...)
	for _, c := range cases {
		peer := netip.MustParseAddrPort(c.peer)
		for _, text := range []string{c.held, c.foreign} {
			from := netip.MustParseAddrPort(text)
			// Other packets without a connection, such as a FIN, open one for a userspace datapath.
			for i, flags := range []string{"0x012", "0x003", "0x006"} {
				other := netip.AddrPortFrom(from.Addr(), uint16(4010+i))
				w.goes("what belongs to no connection, from "+text, "ovn", packet("tcp", other, peer, "tcp_flags="+flags), topology.MarkPodToNode)
			}
			w.goes("a SYN from "+text, "ovn", packet("tcp", from, peer, "tcp_flags=0x002"), topology.MarkPodToNode, "wire")
			w.goes("a datagram from "+text, "ovn", packet("udp", from, peer), topology.MarkPodToNode, "wire")
		}
		lb, client := netip.MustParseAddrPort(c.lb), netip.AddrPortFrom(peer.Addr(), 4002)
		w.goes("a node's request to a Service", "wire", packet("tcp", client, lb, "tcp_flags=0x002"), 0, "ovn")
		w.goes("the answer of an egress pod", "ovn", packet("tcp", lb, client, "tcp_flags=0x012"), topology.MarkPodToNode, "wire")
		w.goes("what is no answer", "ovn", packet("tcp", lb, peer, "tcp_flags=0x012"), topology.MarkPodToNode)
		w.goes("a FIN with the address of the node", "ovn", packet("tcp", netip.MustParseAddrPort(c.node), peer, "tcp_flags=0x011"), topology.MarkPodToNode, "wire")
	}
}
