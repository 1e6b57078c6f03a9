package node

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestOwnAddress: on the bridge for external gateways all packets from OVN have the address of the
// node there, or that of a pod that is meant to keep its own, and answers come back.
func TestOwnAddress(t *testing.T) {
	second := []bridge.Family{
		{Family: topology.IPv4, Node: netip.MustParseAddr("192.168.50.3")}, {Family: topology.IPv6, Node: netip.MustParseAddr("fd00:50::3")},
	}
	marks := bridge.DefaultMarks(topology.ConntrackZone)
	w := newBridge(t, slices.Concat(bridge.OwnAddress(second[0], marks), bridge.OwnAddress(second[1], marks))...)
	for _, c := range []struct{ here, first, egress, pod, peer string }{
		{"192.168.50.3", "172.18.0.3", "172.18.0.33", "10.244.1.3", "192.168.50.51"},
		{"fd00:50::3", "fc00::3", "fc00::33", "fd00:10:244:2::3", "fd00:50::51"},
	} {
		at := func(a string, port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(a), port) }
		peer := at(c.peer, 80)
		for i, from := range []string{c.first, c.egress} { // what the gateway router translates to
			port := uint16(4000 + i)
			w.goes("a SYN with "+from, "ovn", packet("tcp", at(from, port), peer, "tcp_flags=0x002"), 0, "wire")
			w.goes("its answer, to the address of the node there", "wire", packet("tcp", peer, at(c.here, port), "tcp_flags=0x012"), 0, "ovn")
			w.goes("a datagram with "+from, "ovn", packet("udp", at(from, port), peer), 0, "wire")
			w.goes("its answer, to the address of the node there", "wire", packet("udp", peer, at(c.here, port)), 0, "ovn")
			for j, flags := range []string{"0x012", "0x003", "0x006"} {
				w.goes("what cannot be translated, from "+from, "ovn", packet("tcp", at(from, uint16(4010+j)), peer, "tcp_flags="+flags), 0)
			}
		}
		w.goes("the router's own", "ovn", packet("udp", at(c.here, 50000), at(c.peer, 3784)), 0, "wire")
		w.goes("BFD of the gateway", "wire", packet("udp", at(c.peer, 50001), at(c.here, 3784)), 0, "host", "ovn")
		w.goes("a pod that keeps its address", "ovn", packet("tcp", at(c.pod, 4000), peer, "tcp_flags=0x002"), topology.MarkUntranslated, "wire")
		w.goes("its answer", "wire", packet("tcp", peer, at(c.pod, 4000), "tcp_flags=0x012"), 0, "ovn")
		w.goes("a pod that does not", "ovn", packet("tcp", at(c.pod, 4001), peer, "tcp_flags=0x002"), 0)
		w.goes("a call to a pod", "wire", packet("tcp", at(c.peer, 4002), at(c.pod, 80), "tcp_flags=0x002"), 0, "ovn")
		w.goes("the reply", "ovn", packet("tcp", at(c.pod, 80), at(c.peer, 4002), "tcp_flags=0x012"), 0, "wire")
		w.goes("the host's own", "host", packet("tcp", at(c.here, 5000), peer, "tcp_flags=0x002"), 0, "wire")
		w.goes("the answer to the host", "wire", packet("tcp", peer, at(c.here, 5000), "tcp_flags=0x012"), 0, "host")
	}
	const mac = ",dl_src=02:42:ac:12:00:03,dl_dst=ff:ff:ff:ff:ff:ff"
	for what, c := range map[string]struct {
		packet string
		want   []string
	}{
		"a question":                     {"arp,arp_op=1,arp_spa=192.168.50.3,arp_tpa=192.168.50.51" + mac, []string{"wire"}},
		"an answer for the node":         {"arp,arp_op=2,arp_spa=192.168.50.3,arp_tpa=192.168.50.51" + mac, []string{"wire"}},
		"an answer for an egress IP":     {"arp,arp_op=2,arp_spa=172.18.0.33,arp_tpa=192.168.50.51" + mac, nil},
		"an answer for a load balancer":  {"arp,arp_op=2,arp_spa=192.168.50.99,arp_tpa=192.168.50.51" + mac, nil},
		"a solicitation":                 {"icmp6,icmpv6_type=135,icmpv6_code=0,nw_ttl=255,nd_target=fd00:50::51,ipv6_src=fd00:50::3,ipv6_dst=fd00:50::51" + mac, []string{"wire"}},
		"an advertisement of the node":   {"icmp6,icmpv6_type=136,icmpv6_code=0,nw_ttl=255,nd_target=fd00:50::3,ipv6_src=fd00:50::3,ipv6_dst=fd00:50::51" + mac, []string{"wire"}},
		"an advertisement of an address": {"icmp6,icmpv6_type=136,icmpv6_code=0,nw_ttl=255,nd_target=fc00::33,ipv6_src=fc00::33,ipv6_dst=fd00:50::51" + mac, nil},
	} {
		w.goes(what, "ovn", c.packet, 0, c.want...)
	}
}
