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

// prioritySuppressARP is above every flow that could hand ARP or neighbour discovery to
// OVN or to the wire: 100 and 60, which take neighbour discovery with the rest of
// IPv6, and 10 and 0, which take ARP. What comes to it is looked up one above it.
const prioritySuppressARP = 150

// priorityLeaving is where the source of what leaves is looked up: below all flows that send it
// on with another source, or drop it, and above that by which the rest leaves.
const priorityLeaving = 103

// TableSuppressed has one flow for each egress address that this node does not hold. It finds
// the address in register 1 or, of IPv6, in those from 4 on, and says in register 2 what is
// to become of the packet.
const TableSuppressed = 5

// The bits of register 2. Those that say what was looked up keep a packet from being
// looked up for the same again.
const (
	regSuppressed = 1 << iota // the address is not this node's
	regDropped                // and nothing leaves with it
	regNeighbor               // looked up: who is asked for, or says where it is
	regLeaving                // looked up: the source of what leaves
	regCome                   // looked up: the destination of what comes and belongs to no connection
)

func register(bit int) string { return fmt.Sprintf("reg2=%#x/%#[1]x", bit) }

// lookup is the flow that has TableSuppressed look for what a field has, and goes on in the
// same table then.
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
	// priorityDeliverToOVN is above those by which connections are the host's; what belongs
	// to the gateway router's is one above it.
	priorityDeliverToOVN = 101
	// priorityStray is below all that belongs to a connection, and above the rest.
	priorityStray = 99
)

// Suppression returns the flows that keep the gateway router from answering for addresses of
// SuppressARP, and from announcing them. What asks for such an address goes to the host
// alone, which does not have it. What comes for it and belongs to no connection from here is
// dropped: the host would send it on to who holds the address, who may have sent it here.
//
// Where it says so, what leaves with it is dropped, too: a gateway router may remember a
// connection from the time when it had the address, or from an EgressIP that has ended. It
// is counted with what nothing has translated.
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
		come := slices.Concat(wire, []string{t.ip})
		flows = append(flows,
			lookup(0, priorityLeaving, regLeaving, fields+"_SRC", in(Patch), t.ip),
			flow(0, PriorityUnsnatted, []string{in(Patch), t.ip, register(regDropped)}, "drop"),
			lookup(1, priorityStray, regCome, fields+"_DST", slices.Clone(come)...),
			flow(1, priorityStray, append(come, register(regSuppressed)), "drop"))
	}
	return flows
}

// SuppressARP has the flows of Suppression take an address for one that this node does not
// hold; dropped: what leaves with it is dropped, too.
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

// EgressAddrs returns the egress addresses that the flows of a bridge, as ovs-ofctl prints
// them, hand to the gateway router (DeliverToOVN) and those that they keep it from answering
// for (SuppressARP), whichever process has written them.
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
			to, err := netip.ParseAddr(cmp.Or(fields["nw_dst"], fields["ipv6_dst"])) // a range is none
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

// inRegisters returns the address that a flow of TableSuppressed is for. ovs-ofctl prints
// registers of 32 bits, whatever the flow was written with.
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
