package bridge

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// priorityIngress is above all other flows for what the wire sends to the node.
const priorityIngress = 110

// Ingress is traffic from the wire that goes to the gateway router although
// nobody behind it has asked for it: a service that OVN balances.
type Ingress struct {
	To       netip.AddrPort
	Protocol string // "tcp", "udp", "sctp"
	// Sources may use it; empty: everybody. The others' packets are the host's.
	Sources []netip.Prefix
}

// IngressFlows returns the flows of one Ingress. A segment of TCP that opens a connection
// is a request to the service. Of the others conntrack tells: an answer from outside to
// who opened a connection from the address and port of a service, which a pod may do
// that leaves with its address, is none. What belongs to no connection is OVN's to refuse.
//
// Datagrams pass for requests, all of them: nothing tells the first one, and a datapath
// in user space (Open vSwitch 3.1) drops a packet that is looked up more than six times,
// which one to a pod of this node would be.
func IngressFlows(b Bridge, i Ingress, m Marks) []host.Flow {
	f := topology.FamilyOf(i.To.Addr())
	t, protocol := texts[f], i.Protocol
	if f == topology.IPv6 {
		protocol += "6"
	}
	from := []string{""}
	if len(i.Sources) > 0 {
		from = from[:0]
	}
	for _, p := range i.Sources {
		if p.Bits() == 0 {
			from = append(from, "")
			continue
		}
		from = append(from, t.src+"="+p.Masked().String())
	}
	flows := make([]host.Flow, 0, len(from))
	for _, src := range from {
		request := []string{in(Uplink), b.tagged(), protocol, src, t.dst + "=" + i.To.Addr().String(), fmt.Sprintf("tp_dst=%d", i.To.Port())}
		add := func(table int, more ...string) {
			flows = append(flows, flow(table, priorityIngress, append(slices.Clone(request), more...), m.remember(m.OVN, ""), output(Patch)))
		}
		if i.Protocol != "tcp" {
			add(0)
			continue
		}
		add(0, "tcp_flags=+syn-ack")
		add(1, "ct_state=-est-rel+trk")
	}
	return flows
}
