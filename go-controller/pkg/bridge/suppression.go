package bridge

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// prioritySuppressARP is above every flow that could send ARP or neighbor discovery to OVN or to
// the wire: 100 and 60, which match neighbor discovery with the rest of IPv6, and 10 and 0, which
// match ARP. The lookup of such packets has a priority one higher.
const prioritySuppressARP = 150

// priorityLeaving is the priority of the flow that looks up the source of leaving packets: below
// all flows that send packets with another source, or drop them, and above the flow that sends all
// others.
const priorityLeaving = 103

// TableSuppressed has one flow for each egress address that this node does not hold. The lookup
// puts the address in register 1, or for IPv6 in registers 4 to 7; the flow records the result in
// register 2.
const TableSuppressed = 5

// The bits of register 2. The bits for completed lookups prevent a packet from being looked up
// again for the same field.
const (
	regSuppressed = 1 << iota // this node does not hold the address
	regDropped                // and packets from it are dropped
	regNeighbor               // looked up: the target or sender of ARP or neighbor discovery
	regLeaving                // looked up: the source of a leaving packet
	regIncoming               // looked up: the destination of an incoming packet that belongs to no connection
)

func register(bit int) string { return fmt.Sprintf("reg2=%#x/%#[1]x", bit) }

// lookup returns the flow that looks up the content of a field in TableSuppressed, and then
// continues in the same table.
func lookup(table, priority, bit int, field string, match ...string) host.Flow {
	register := "NXM_NX_REG1"
	if strings.Contains(field, "IPV6") || strings.Contains(field, "ND_") {
		register = "NXM_NX_XXREG1"
	}
	return flow(table, priority, append(match, fmt.Sprintf("reg2=0/%#x", bit)),
		fmt.Sprintf("load:1->NXM_NX_REG2[%d]", bits.TrailingZeros(uint(bit))), fmt.Sprintf("move:%s[]->%s[]", field, register),
		fmt.Sprintf("resubmit(,%d)", TableSuppressed), fmt.Sprintf("resubmit(,%d)", table))
}

const (
	// priorityDeliverToOVN is above the flows that send the host's connections to it; the flow for
	// the gateway router's own connections is one higher.
	priorityDeliverToOVN = 101
	// priorityStray is below all flows for packets that belong to a connection, and above the
	// others.
	priorityStray = 99
)

// Suppression returns the flows that keep the gateway router from answering for, and announcing,
// the addresses given by SuppressARP. ARP and neighbor discovery for such an address goes to the
// host only, which does not have it. Packets to it that belong to no connection from here are
// dropped: the host would forward them to the holder of the address, which may have sent them here.
//
// If SuppressARP says so, packets from the address are dropped, too: a gateway router may remember
// a connection from the time when it had the address, or from an EgressIP that has been removed.
// They are counted with untranslated packets.
func Suppression(b Bridge) []host.Flow {
	const solicitation, advertisement = "icmp_type=135", "icmp_type=136"
	wire, ovn := []string{in(Uplink), b.tagged()}, []string{in(Patch)}
	var flows []host.Flow
	neighbor := func(field string, from []string, match ...string) {
		match = slices.Concat(from, match)
		actions := []string{"drop"}
		if slices.Equal(from, wire) {
			actions = b.toHost()
		}
		flows = append(flows, lookup(0, prioritySuppressARP+1, regNeighbor, field, slices.Clone(match)...),
			flow(0, prioritySuppressARP, append(match, register(regSuppressed)), actions...))
	}
	neighbor("NXM_OF_ARP_TPA", wire, "arp")
	neighbor("NXM_OF_ARP_SPA", ovn, "arp")
	neighbor("NXM_NX_ND_TARGET", wire, "icmp6", solicitation)
	neighbor("NXM_NX_ND_TARGET", ovn, "icmp6", advertisement)
	neighbor("NXM_NX_IPV6_SRC", ovn, "icmp6", solicitation)
	for _, f := range topology.Families {
		t, fields := texts[f], "NXM_OF_IP"
		if f == topology.IPv6 {
			fields = "NXM_NX_IPV6"
		}
		incoming := slices.Concat(wire, []string{t.ip})
		flows = append(flows,
			lookup(0, priorityLeaving, regLeaving, fields+"_SRC", in(Patch), t.ip),
			flow(0, PriorityUnsnatted, []string{in(Patch), t.ip, register(regDropped)}, "drop"),
			lookup(1, priorityStray, regIncoming, fields+"_DST", slices.Clone(incoming)...),
			flow(1, priorityStray, append(incoming, register(regSuppressed)), "drop"))
	}
	return flows
}

// SuppressARP returns the flow that makes the flows of Suppression treat an address as one that
// this node does not hold; with dropped, packets from it are dropped, too.
func SuppressARP(addr netip.Addr, dropped bool) host.Flow {
	what := regSuppressed
	if dropped {
		what |= regDropped
	}
	match := fmt.Sprintf("reg1=%#x", addr.AsSlice())
	if topology.FamilyOf(addr) == topology.IPv6 {
		match = "xx" + match
	}
	return flow(TableSuppressed, prioritySuppressARP, []string{match}, fmt.Sprintf("load:%d->NXM_NX_REG2[0..1]", what))
}

// EgressAddrs returns, from the flows of a bridge as ovs-ofctl prints them, the egress addresses
// whose packets they send to the gateway router (DeliverToOVN) and those that they keep it from
// answering for (SuppressARP), whichever process has written them.
func EgressAddrs(dump string) (delivered, suppressed []netip.Addr) {
	for line := range strings.Lines(dump) {
		match, _, _ := strings.Cut(line, " actions=")
		fields := map[string]string{}
		for field := range strings.FieldsFuncSeq(match, func(r rune) bool { return r == ',' || r == ' ' }) {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		switch fields["table"] {
		case "1":
			to, err := netip.ParseAddr(cmp.Or(fields["nw_dst"], fields["ipv6_dst"])) // fails for a range
			if err == nil && fields["priority"] == strconv.Itoa(priorityDeliverToOVN) {
				delivered = append(delivered, to)
			}
		case strconv.Itoa(TableSuppressed):
			if a, ok := inRegisters(fields); ok {
				suppressed = append(suppressed, a)
			}
		}
	}
	return delivered, suppressed
}

// inRegisters returns the address of a flow of TableSuppressed. ovs-ofctl prints 32-bit registers,
// whatever the flow was written with.
func inRegisters(fields map[string]string) (netip.Addr, bool) {
	registers := []string{"reg4", "reg5", "reg6", "reg7"}
	if _, ok := fields["reg1"]; ok {
		registers = []string{"reg1"}
	}
	var addr []byte
	for _, r := range registers {
		n, err := strconv.ParseUint(fields[r], 0, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = binary.BigEndian.AppendUint32(addr, uint32(n))
	}
	return netip.AddrFromSlice(addr)
}

// DeliverToOVN returns the flows that send packets from the wire to an egress address that this
// node holds to the gateway router, and not to the host, even if the connection is not known yet:
// the host would forward them as its own, and the connection would count as the host's from then
// on.
//
// before is the MAC address of the node that had the address until a moment ago, "" for none. That
// node still translates for connections that this node does not know: packets of these go back to
// the wire, to that node, as soon as this bridge's own MAC address is known.
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
