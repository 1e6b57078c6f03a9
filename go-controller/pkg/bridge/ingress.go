package bridge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// priorityIngress is above all other flows for packets from the wire to the node.
const priorityIngress = 110

// priorityLearnReply is above the flow for all other packets of the host.
const priorityLearnReply = 101

// Ingress is unsolicited traffic from the wire that goes to the gateway router: a service that OVN
// balances.
type Ingress struct {
	To       netip.AddrPort
	Protocol string // "tcp", "udp", "sctp"
	// Sources may use the service; empty: everybody. Packets from other sources go to the host, which drops them.
	Sources []netip.Prefix
	// Closed: nobody may use the service.
	Closed bool
}

// TableHostReply holds learned flows: who received datagrams of the host from the address and port
// of a service, and may therefore answer. Only such answers match its flows, which set register 0.
const TableHostReply = 4

const (
	// learnedIdle is after how many seconds without packets a learned flow expires, as such
	// connections do in the kernel.
	learnedIdle = 120
	// learnedLimit is the maximum number of learned flows, because pods decide where they send
	// packets.
	learnedLimit = 10000
)

// transport is how a protocol is written in the learn action.
type transport struct {
	number int
	field  string
}

var transports = map[string]transport{"udp": {17, "OXM_OF_UDP"}, "sctp": {132, "OXM_OF_SCTP"}}

// IngressFlows returns the flows of one Ingress. A packet that opens a connection is a request to
// the service. A pod whose packets leave with the service's address may itself open a connection
// from the service's address and port; the answers from outside are not requests.
//
// The flags of a TCP segment show whether it opens a connection; for other segments conntrack
// decides, and OVN refuses those that belong to no connection. Datagrams have no flags, and looking
// each one up in conntrack is too much: a userspace datapath (Open vSwitch 3.1) drops a packet
// after more than six lookups, which would affect the first packet to a pod of this node. So the
// bridge learns from what the host sends who will answer.
func IngressFlows(b Bridge, i Ingress, m Marks) []host.Flow {
	f := topology.FamilyOf(i.To.Addr())
	t, protocol := texts[f], i.Protocol
	if f == topology.IPv6 {
		protocol += "6"
	}
	restricted := i.Closed || len(i.Sources) > 0
	from := []string{""}
	if restricted {
		from = from[:0]
	}
	for _, p := range i.Sources {
		if p.Bits() == 0 {
			from = append(from, "")
			continue
		}
		from = append(from, t.src+"="+p.Masked().String())
	}
	to := []string{in(Uplink), b.tagged(), protocol, t.dst + "=" + i.To.Addr().String(), fmt.Sprintf("tp_dst=%d", i.To.Port())}
	var flows []host.Flow
	if restricted {
		// Connections that were opened when their clients were allowed.
		flows = append(flows, flow(0, 108, to, b.toHost()...))
	}
	for _, src := range from {
		request := slices.Insert(slices.Clone(to), 3, src)
		add := func(table int, condition string, actions ...string) {
			flows = append(flows, flow(table, priorityIngress, append(slices.Clone(request), condition), actions...))
		}
		balance := []string{m.remember(m.OVN, ""), output(Patch)}
		if i.Protocol == "tcp" {
			add(0, "tcp_flags=+syn-ack", balance...)
			add(1, "ct_state=-est-rel+trk", balance...)
			if restricted {
				flows = append(flows, flow(0, 109, request, m.track()))
			}
			continue
		}
		add(0, "", fmt.Sprintf("resubmit(,%d)", TableHostReply), "resubmit(,1)")
		add(1, "ct_state=-trk,reg0=0", balance...) // answers go to the host, like all other packets
	}
	if i.Protocol != "tcp" && !i.Closed {
		sent := []string{in(Local), protocol, t.src + "=" + i.To.Addr().String(), fmt.Sprintf("tp_src=%d", i.To.Port())}
		flows = append(flows, flow(0, priorityLearnReply, sent,
			learnReplies(f, transports[i.Protocol]), m.remember(m.Host, ""), b.tag(), output(Uplink)))
	}
	return flows
}

// learnReplies returns the action that adds a flow to TableHostReply for the answers to a packet.
func learnReplies(f topology.Family, p transport) string {
	ethernet, ip := "0x800", "NXM_OF_IP"
	if f == topology.IPv6 {
		ethernet, ip = "0x86dd", "NXM_NX_IPV6"
	}
	parts := []string{
		fmt.Sprintf("table=%d,priority=%d,cookie=%#x", TableHostReply, priorityIngress, host.LearnedCookie),
		fmt.Sprintf("idle_timeout=%d,limit=%d", learnedIdle, learnedLimit),
		fmt.Sprintf("eth_type=%s,nw_proto=%d", ethernet, p.number),
	}
	for _, field := range []string{ip, p.field} {
		parts = append(parts, fmt.Sprintf("%[1]s_SRC[]=%[1]s_DST[],%[1]s_DST[]=%[1]s_SRC[]", field))
	}
	return "learn(" + strings.Join(append(parts, "load:1->NXM_NX_REG0[]"), ",") + ")"
}
