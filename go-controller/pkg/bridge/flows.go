package bridge

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Symbols that stand for ports in flows, in "in_port=" and in "output:".
const (
	Uplink = "PHYS"  // the physical port
	Patch  = "PATCH" // the port to br-int, hence to the gateway router
	Local  = "LOCAL" // the host
)

// PriorityUnsnatted is the priority of the flows in table 0 and in TablePodReply, and of no others,
// that keep packets of pods from leaving if their source address was not translated, or was
// translated to an egress address that is on another node: their counters show what would have
// leaked.
const PriorityUnsnatted = 104

// TablePodReply separates replies with the address of a pod from packets that were not translated,
// and packets that got the address of the node from packets that could not be given it.
const TablePodReply = 3

// TableForgotten handles the packets that match flows of PriorityUnsnatted: a pod that closes a
// connection which the node has forgotten is answered by the host; all other packets are dropped.
const TableForgotten = 6

// TableServicePort separates replies of Services from other packets that their pods send from the
// same ports, and PriorityNoReply is the priority of the flow there, and of no other, that drops
// the other packets: they would leave with the address of the node, although these pods have other
// addresses.
const (
	TableServicePort = 2
	PriorityNoReply  = 50
)

// bfdPort is the UDP port of single-hop BFD.
const bfdPort = 3784

// Bridge is what the flows depend on about the external bridge.
type Bridge struct {
	// MAC is the address that the host and the gateway router share.
	MAC string
	// VLAN is the tag of frames on the uplink and on the patch port; the host's frames are
	// untagged. 0: no tags anywhere.
	VLAN int
	// EncapPort is the UDP port of the tunnels.
	EncapPort int
}

// Family is what the flows depend on about one IP family of a node.
type Family struct {
	Family topology.Family
	// Node is the node's address.
	Node netip.Addr
	// Subnet is the subnet of the node's own pods; invalid if it has none yet.
	Subnet netip.Prefix
	// Cluster are the subnets of all pods.
	Cluster []netip.Prefix
}

// Marks are the conntrack zone of the bridge and the marks in it.
type Marks struct {
	Zone      int // conntrack zone of the bridge
	OVN, Host int // conntrack marks: who opened the connection
	PodToNode int // packet mark of traffic that must leave with the node's address
	// ServicePort is the packet mark of traffic that may leave with the node's address only if it
	// is a reply.
	ServicePort int
	// Untranslated is the packet mark of traffic that leaves with the address of its pod.
	Untranslated int
}

// DefaultMarks returns the documented marks in the given zone.
func DefaultMarks(zone int) Marks {
	return Marks{
		Zone: zone, OVN: topology.ConntrackMarkOVN, Host: topology.ConntrackMarkHost,
		PodToNode: topology.MarkPodToNode, ServicePort: topology.MarkServicePort, Untranslated: topology.MarkUntranslated,
	}
}

// text has the names of a family's match fields.
type text struct{ ip, tcp, udp, src, dst string }

var texts = map[topology.Family]text{
	topology.IPv4: {ip: "ip", tcp: "tcp", udp: "udp", src: "nw_src", dst: "nw_dst"},
	topology.IPv6: {ip: "ipv6", tcp: "tcp6", udp: "udp6", src: "ipv6_src", dst: "ipv6_dst"},
}

// flow builds one flow.
func flow(table, priority int, match []string, actions ...string) host.Flow {
	parts := []string{fmt.Sprintf("table=%d,priority=%d", table, priority)}
	for _, m := range match {
		if m != "" {
			parts = append(parts, m)
		}
	}
	kept := actions[:0:0]
	for _, a := range actions {
		if a != "" {
			kept = append(kept, a)
		}
	}
	return host.Flow(strings.Join(parts, ",") + ",actions=" + strings.Join(kept, ","))
}

func in(port string) string     { return "in_port=" + port }
func output(port string) string { return "output:" + port }

// tagged matches frames of the uplink's VLAN.
func (b Bridge) tagged() string {
	if b.VLAN == 0 {
		return ""
	}
	return fmt.Sprintf("dl_vlan=%d", b.VLAN)
}

// toHost sends a frame from the wire to the host.
func (b Bridge) toHost() []string {
	if b.VLAN == 0 {
		return []string{output(Local)}
	}
	return []string{"pop_vlan", output(Local)}
}

// toBoth sends it to OVN, with its tag, and to the host, without it.
func (b Bridge) toBoth() []string {
	return append([]string{output(Patch)}, b.toHost()...)
}

// toAll sends it to everybody, with or without the tag as each expects it.
func (b Bridge) toAll() []string {
	if b.VLAN == 0 {
		return []string{"FLOOD"}
	}
	return b.toBoth()
}

// tag adds the VLAN tag to a frame of the host.
func (b Bridge) tag() string {
	if b.VLAN == 0 {
		return ""
	}
	const present = 0x1000 // the OpenFlow bit for "has a tag"
	return fmt.Sprintf("push_vlan:0x8100,set_field:%d->vlan_vid", present|b.VLAN)
}

// remember commits a connection with a mark. With a NAT, packets are translated first and go on to
// TablePodReply.
func (m Marks) remember(mark int, nat string) string {
	if nat != "" {
		nat = fmt.Sprintf("nat(%s),table=%d,", nat, TablePodReply)
	}
	return fmt.Sprintf("ct(commit,zone=%d,%sexec(set_field:%#x->ct_mark))", m.Zone, nat, mark)
}

// track looks up the connection of a packet from the wire, which goes on to table 1.
func (m Marks) track() string { return fmt.Sprintf("ct(zone=%d,nat,table=1)", m.Zone) }

// Flows returns the flows of one IP family. Both gateway modes share them.
func Flows(b Bridge, f Family, m Marks) []host.Flow {
	return append(classify(b, f, m), deliver(b, f, m)...)
}

// classify returns table 0: tunnels bypass conntrack, connections are marked with who opened them,
// and all other packets are looked up in conntrack.
func classify(b Bridge, f Family, m Marks) []host.Flow {
	t := texts[f.Family]
	encap := []string{t.udp, fmt.Sprintf("udp_dst=%d", b.EncapPort)}
	wire := in(Uplink)

	flows := []host.Flow{
		// A tunnel endpoint in userspace receives packets at the local port.
		flow(0, 205, append([]string{wire, b.tagged(), "dl_dst=" + b.MAC}, encap...), b.toHost()...),
		flow(0, 200, append([]string{wire, b.tagged()}, encap...), "NORMAL"),
		flow(0, 200, append([]string{in(Local)}, encap...), b.tag(), output(Uplink)),
	}
	if f.Subnet.IsValid() {
		own := t.src + "=" + f.Subnet.Masked().String()
		flows = append(flows,
			// Packets of own pods that OVN did not translate because their gateways expect the
			// pod's address.
			flow(0, 109, []string{in(Patch), t.ip, fmt.Sprintf("pkt_mark=%#x", m.Untranslated), own}, m.remember(m.OVN, ""), output(Uplink)),
			// Packets to such gateways that OVN has translated, because the gateway has just become
			// usable, unless they are replies with the address of a Service.
			flow(0, 108, []string{in(Patch), t.ip, fmt.Sprintf("pkt_mark=%#x", m.Untranslated)}, fmt.Sprintf("ct(zone=%d,table=%d)", m.Zone, TablePodReply)),
			flow(TablePodReply, 111, []string{t.ip, "ct_state=-rpl+trk", fmt.Sprintf("pkt_mark=%#x", m.Untranslated)}, "drop"),
			// Replies of own pods to clients that connected to the pod's address.
			flow(0, 107, []string{in(Patch), t.ip, own}, fmt.Sprintf("ct(zone=%d,table=%d)", m.Zone, TablePodReply)),
			flow(TablePodReply, 110, []string{t.ip, "ct_state=+est+rpl+trk", fmt.Sprintf("ct_mark=%#x", m.OVN)}, output(Uplink)),
			flow(TablePodReply, 110, []string{t.ip, "ct_state=+rel+rpl+trk", fmt.Sprintf("ct_mark=%#x", m.OVN)}, output(Uplink)),
			flow(TablePodReply, PriorityUnsnatted, []string{t.ip}, withhold))
	}
	for _, c := range f.Cluster {
		// Packets of pods whose translation is not in place yet, or that belong to no connection
		// that the gateway router would translate: they would leave with the pod's address.
		flows = append(flows, flow(0, PriorityUnsnatted, []string{in(Patch), t.ip, t.src + "=" + c.Masked().String()}, withhold))
	}
	return append(append(flows, forgotten(b, f)...),
		flow(0, 100, []string{in(Patch), t.ip}, m.remember(m.OVN, ""), output(Uplink)),
		flow(0, 100, []string{in(Local), t.ip}, m.remember(m.Host, ""), b.tag(), output(Uplink)),
		flow(0, 50, []string{wire, b.tagged(), t.ip}, m.track()),
	)
}

// withhold is the action for untranslated packets of pods.
var withhold = fmt.Sprintf("resubmit(,%d)", TableForgotten)

// forgotten returns TableForgotten. A packet that ends a connection unknown to all zones goes to
// the host, whose guard answers it with a reset. The host cannot forward it, with or without the
// guard, because its time to live is 1. Other segments are not answered: if the zones pick up
// connections in the middle, these segments are out of the window of a live connection.
func forgotten(b Bridge, f Family) []host.Flow {
	t := texts[f.Family]
	var flows []host.Flow
	for _, c := range f.Cluster {
		flows = append(flows, flow(TableForgotten, 100,
			[]string{in(Patch), b.tagged(), t.tcp, t.src + "=" + c.Masked().String(), "ip_frag=no", "tcp_flags=+fin-syn-rst"},
			append([]string{"set_field:" + topology.ForgottenMAC + "->eth_src", "set_field:" + b.MAC + "->eth_dst", "mod_nw_ttl:1"}, b.toHost()...)...))
	}
	return append(flows, flow(TableForgotten, 0, []string{t.ip}, "drop"))
}

// Marked returns the flows of one family that make traffic from pods to nodes leave with the node's
// address. Only the egress features mark it. A packet that belongs to no connection is not
// translated: it is dropped by the same flow of Flows in TablePodReply, which lets replies to
// clients of a load balancer pass.
func Marked(f Family, m Marks) []host.Flow {
	t, marked := texts[f.Family], fmt.Sprintf("pkt_mark=%#x", m.PodToNode)
	return []host.Flow{
		// Translating a packet to the address that it already has would break conntrack, so this
		// case precedes the translation.
		flow(0, 106, []string{in(Patch), t.ip, marked, t.src + "=" + f.Node.String()}, m.remember(m.OVN, ""), output(Uplink)),
		flow(0, 105, []string{in(Patch), t.ip, marked}, m.remember(m.OVN, "src="+f.Node.String())),
		flow(TablePodReply, 110, []string{t.ip, t.src + "=" + f.Node.String()}, output(Uplink)),
	}
}

// OwnAddress returns the flows of one family that give all packets from OVN the node's address on
// the network of the bridge, f.Node, if the gateway router translates to an address on another
// network. If there is none, no packets from OVN leave. Packets that are meant to leave with the
// address of a pod have been sent by Flows before. Packets that cannot be translated are dropped as
// in Marked. The gateway router answers for all its addresses on any network: here only its answers
// for f.Node may leave.
func OwnAddress(f Family, m Marks) []host.Flow {
	t := texts[f.Family]
	if !f.Node.IsValid() {
		return []host.Flow{flow(0, 101, []string{in(Patch), t.ip}, "drop")}
	}
	own := t.src + "=" + f.Node.String()
	flows := []host.Flow{
		// Here, too, no packet is translated to the address that it already has.
		flow(0, 102, []string{in(Patch), t.ip, own}, m.remember(m.OVN, ""), output(Uplink)),
		flow(0, 101, []string{in(Patch), t.ip}, m.remember(m.OVN, "src="+f.Node.String())),
		flow(TablePodReply, 110, []string{t.ip, own}, output(Uplink)),
	}
	if f.Family == topology.IPv4 {
		return append(flows,
			flow(0, 103, []string{in(Patch), "arp", "arp_spa=" + f.Node.String()}, output(Uplink)),
			flow(0, 102, []string{in(Patch), "arp"}, "drop"))
	}
	return append(flows, // no connection exists for them
		flow(0, 103, []string{in(Patch), "icmp6", "icmp_type=135"}, output(Uplink)),
		flow(0, 103, []string{in(Patch), "icmp6", "icmp_type=136", "nd_target=" + f.Node.String()}, output(Uplink)),
		flow(0, 102, []string{in(Patch), "icmp6", "icmp_type=136"}, "drop"))
}

// ServicePort returns the flows of one family that let packets with the mark leave with the node's
// address only if they are replies: if the zone has a connection that was opened from the wire and
// was sent to the gateway router. This also covers replies from an address of a load balancer;
// packets with an egress address already have the right source.
func ServicePort(f Family, m Marks) []host.Flow {
	t, marked := texts[f.Family], fmt.Sprintf("pkt_mark=%#x", m.ServicePort)
	return []host.Flow{
		flow(0, 108, []string{in(Patch), t.ip, marked, t.src + "=" + f.Node.String()},
			fmt.Sprintf("ct(zone=%d,table=%d)", m.Zone, TableServicePort)),
		flow(TableServicePort, 100, []string{t.ip, "ct_state=+est+rpl+trk", fmt.Sprintf("ct_mark=%#x", m.OVN)}, output(Uplink)),
		flow(TableServicePort, PriorityNoReply, []string{t.ip}, "drop"),
	}
}

// deliver returns table 1: packets from the wire after conntrack.
func deliver(b Bridge, f Family, m Marks) []host.Flow {
	t := texts[f.Family]
	var flows []host.Flow
	for _, state := range []string{"+est+trk", "+rel+trk"} {
		known := func(mark int) []string {
			return []string{b.tagged(), t.ip, "ct_state=" + state, fmt.Sprintf("ct_mark=%#x", mark)}
		}
		flows = append(flows,
			flow(1, 100, known(m.OVN), output(Patch)),
			flow(1, 100, known(m.Host), b.toHost()...),
		)
	}
	if f.Subnet.IsValid() {
		// New connections from external gateways to own pods, whose replies leave with the pod's
		// address.
		flows = append(flows, flow(1, 16, []string{in(Uplink), b.tagged(), t.ip, "ct_state=-est-rel+trk",
			t.dst + "=" + f.Subnet.Masked().String()}, m.remember(m.OVN, ""), output(Patch)))
	}
	for _, c := range f.Cluster {
		// Other packets to pods; symmetric replies need this, too.
		flows = append(flows, flow(1, 15, []string{t.ip, t.dst + "=" + c.Masked().String()}, output(Patch)))
	}
	return append(flows,
		flow(1, 13, []string{in(Uplink), b.tagged(), t.udp, fmt.Sprintf("udp_dst=%d", bfdPort)}, b.toBoth()...))
}

// multicast matches broadcast and multicast frames.
const multicast = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"

// CommonFlows returns the flows that belong to no IP family. NORMAL switches between the wire and
// the host: packets to and from OVN need explicit flows.
func CommonFlows(b Bridge) []host.Flow {
	wire, mine := in(Uplink), "dl_dst="+b.MAC
	return []host.Flow{
		// Neighbours probe egress addresses by unicast; only OVN knows these addresses.
		flow(0, 60, []string{wire, b.tagged(), mine, "icmp6", "icmp_type=135"}, b.toBoth()...),
		// ARP replies: two stacks share one MAC address.
		flow(0, 10, []string{wire, b.tagged(), mine}, b.toBoth()...),
		flow(0, 10, []string{in(Patch), "dl_src=" + b.MAC}, output(Uplink)),
		flow(0, 9, []string{in(Patch)}, "drop"),
		flow(0, 1, []string{wire, multicast}, output(Patch), "NORMAL"),
		flow(0, 0, nil, "NORMAL"),
		// Router and neighbour advertisements go to everybody, whoever asked.
		flow(1, 14, []string{b.tagged(), "icmp6", "icmp_type=134"}, b.toAll()...),
		flow(1, 14, []string{b.tagged(), "icmp6", "icmp_type=136"}, b.toAll()...),
		flow(1, 10, []string{b.tagged(), mine}, b.toHost()...),
		flow(1, 1, []string{wire, multicast}, output(Patch), "NORMAL"),
		flow(1, 0, nil, "NORMAL"),
	}
}

// InitialFlows returns the flows of a bridge until all required contributors have contributed
// theirs. They pin the MAC address to the host, so that the first frame of the gateway router does
// not move it, and keep that router silent.
func InitialFlows(b Bridge) []host.Flow {
	return []host.Flow{
		flow(0, 10, []string{in(Uplink), b.tagged(), "dl_dst=" + b.MAC}, b.toHost()...),
		flow(0, 10, []string{in(Local)}, b.tag(), output(Uplink)),
		flow(0, 10, []string{in(Patch)}, "drop"),
		flow(0, 0, nil, "NORMAL"),
	}
}
