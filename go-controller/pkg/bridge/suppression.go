package bridge

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// prioritySuppressARP is above every flow that could hand ARP or neighbour discovery to
// OVN or to the wire: 100 and 60, which take neighbour discovery with the rest of
// IPv6, and 10 and 0, which take ARP.
const prioritySuppressARP = 150

const (
	// priorityDeliverToOVN is above those by which connections are the host's; what belongs
	// to the gateway router's is one above it.
	priorityDeliverToOVN = 101
	// priorityStray is below all that belongs to a connection, and above the rest.
	priorityStray = 99
)

// SuppressARP keeps the gateway router from answering for an address that it has in its
// translations but that this node does not hold, and from announcing it. What
// asks for the address goes to the host alone, which does not have it. What comes
// for it and belongs to no connection from here is dropped: the host would send it
// on to who holds the address, who may have sent it here.
func SuppressARP(b Bridge, addr netip.Addr) []host.Flow {
	a, t := addr.String(), texts[topology.FamilyOf(addr)]
	fromWire := func(match ...string) host.Flow {
		return flow(0, prioritySuppressARP, append([]string{in(Uplink), b.tagged()}, match...), b.toHost()...)
	}
	fromOVN := func(match ...string) host.Flow {
		return flow(0, prioritySuppressARP, append([]string{in(Patch)}, match...), "drop")
	}
	stray := flow(1, priorityStray, []string{in(Uplink), b.tagged(), t.ip, t.dst + "=" + a}, "drop")
	if topology.FamilyOf(addr) == topology.IPv4 {
		return []host.Flow{
			fromWire("arp", "arp_tpa="+a),
			fromOVN("arp", "arp_spa="+a),
			stray,
		}
	}
	return []host.Flow{
		fromWire("icmp6", "icmp_type=135", "nd_target="+a),
		fromOVN("icmp6", "icmp_type=136", "nd_target="+a),
		fromOVN("icmp6", "icmp_type=135", "ipv6_src="+a),
		stray,
	}
}

// EgressAddrs returns the egress addresses that the flows of a bridge, as ovs-ofctl prints
// them, hand to the gateway router (DeliverToOVN) and those that they keep it from answering
// for (SuppressARP), whichever process has written them.
func EgressAddrs(dump string) (delivered, suppressed []netip.Addr) {
	for line := range strings.Lines(dump) {
		match, _, _ := strings.Cut(line, " actions=")
		table, priority, to := "", "", netip.Addr{}
		for field := range strings.FieldsFuncSeq(match, func(r rune) bool { return r == ',' || r == ' ' }) {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "table":
				table = value
			case "priority":
				priority = value
			case "nw_dst", "ipv6_dst":
				to, _ = netip.ParseAddr(value) // a range is none
			}
		}
		switch {
		case table != "1" || !to.IsValid():
		case priority == strconv.Itoa(priorityDeliverToOVN):
			delivered = append(delivered, to)
		case priority == strconv.Itoa(priorityStray):
			suppressed = append(suppressed, to)
		}
	}
	return delivered, suppressed
}

// DropForeign drops what leaves with an egress address that this node does not hold: a
// gateway router may remember a connection from the time when it had the address, or
// from an EgressIP that has ended. It is counted with what nothing has translated.
func DropForeign(addr netip.Addr) host.Flow {
	t := texts[topology.FamilyOf(addr)]
	return flow(0, PriorityUnsnatted, []string{in(Patch), t.ip, t.src + "=" + addr.String()}, "drop")
}

// DeliverToOVN hands what comes from the wire for an egress address that this node holds to
// the gateway router, and not to the host even where the connection is not known yet:
// the host would send it on as if it were its own, and it would pass for the host's
// from then on.
//
// before is the MAC address of the node that had the address until a moment ago, ""
// for none. It still translates for connections that this node does not know: what
// comes for these goes back to the wire, to it, as soon as the bridge's own is known.
func DeliverToOVN(b Bridge, addr netip.Addr, before string) []host.Flow {
	t := texts[topology.FamilyOf(addr)]
	match := []string{in(Uplink), b.tagged(), t.ip, t.dst + "=" + addr.String()}
	if before == "" || b.MAC == "" {
		return []host.Flow{flow(1, priorityDeliverToOVN, match, output(Patch))}
	}
	ours := fmt.Sprintf("ct_mark=%#x", DefaultMarks(topology.ConntrackZone).OVN)
	var flows []host.Flow
	for _, known := range []string{"+trk+est", "+trk+rel"} {
		flows = append(flows, flow(1, priorityDeliverToOVN+1, append(slices.Clone(match), "ct_state="+known, ours), output(Patch)))
	}
	return append(flows, flow(1, priorityDeliverToOVN, match, "mod_dl_src:"+b.MAC, "mod_dl_dst:"+before, "IN_PORT"))
}
