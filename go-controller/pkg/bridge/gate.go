package bridge

import (
	"net/netip"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// priorityGate is above every flow that could hand ARP or neighbour discovery to
// OVN or to the wire: 100 and 60, which take neighbour discovery with the rest of
// IPv6, and 10 and 0, which take ARP.
const priorityGate = 150

// Gate keeps the gateway router from answering for an address that it has in its
// translations but that this node does not hold, and from announcing it. What
// asks for the address goes to the host alone, which does not have it.
func Gate(b Bridge, addr netip.Addr) []host.Flow {
	a := addr.String()
	fromWire := func(match ...string) host.Flow {
		return flow(0, priorityGate, append([]string{in(Uplink), b.tagged()}, match...), b.toHost()...)
	}
	fromOVN := func(match ...string) host.Flow {
		return flow(0, priorityGate, append([]string{in(Patch)}, match...), "drop")
	}
	if topology.FamilyOf(addr) == topology.IPv4 {
		return []host.Flow{
			fromWire("arp", "arp_tpa="+a),
			fromOVN("arp", "arp_spa="+a),
		}
	}
	return []host.Flow{
		fromWire("icmp6", "icmp_type=135", "nd_target="+a),
		fromOVN("icmp6", "icmp_type=136", "nd_target="+a),
		fromOVN("icmp6", "icmp_type=135", "ipv6_src="+a),
	}
}

// priorityHeld is above those by which connections are the host's.
const priorityHeld = 101

// Held hands what comes from the wire for an egress address that this node holds to
// the gateway router, and not to the host even where the connection is not known yet:
// the host would send it on as if it were its own, and it would pass for the host's
// from then on.
func Held(b Bridge, addr netip.Addr) []host.Flow {
	t := texts[topology.FamilyOf(addr)]
	return []host.Flow{flow(1, priorityHeld, []string{in(Uplink), b.tagged(), t.ip, t.dst + "=" + addr.String()}, output(Patch))}
}
