package service_test

import (
	"net"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/routed"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestSourcesByPackets: a pod whose packets leave with the address of its Service gets answers from hosts that are not
// allowed as clients, also to the port of the Service; a client that is not allowed any more loses its connection.
func TestSourcesByPackets(t *testing.T) {
	ns := netnstest.New(t)
	ends := routed.New(t, ns)
	chains, err := iptables.New(append(service.Chains(topology.Families), mgmt(topology.IPv4), mgmt(topology.IPv6)))
	if err != nil {
		t.Fatal(err)
	}
	allow := func(mode topology.GatewayMode, ranges ...string) {
		t.Helper()
		d := decode(t, object(loadBalancer, func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{port(corev1.ProtocolUDP, 5060, 0, "")}
			s.Spec.LoadBalancerSourceRanges = ranges
		}), onTwo()...)
		if err := chains.Apply(t.Context(), service.Feature, service.NodeStateOf(d, config, node(1, mode)).Rules); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct{ iptables, outside, router, pod, vip, cluster string }{
		{"iptables", "192.0.2.9", "10.244.1.3", "10.244.1.6", "5.5.5.5", "10.96.0.9"},
		{"ip6tables", "2001:db8::9", "fd00:10:244:2::3", "fd00:10:244:2::6", "fd55::5", "fd00:10:96::9"},
	} {
		one := func(addr string) string { return topology.HostPrefix(netip.MustParseAddr(addr)).String() }
		ends.AddPod(one(c.pod))
		ends.AddPod(one(c.cluster))
		ns.Run("ip", "route", "add", c.cluster, "via", c.router)
		ns.Run(c.iptables, "-t", "nat", "-A", "POSTROUTING", "-s", c.pod, "-j", "SNAT", "--to-source", c.vip) // as an EgressService does
		server, pod := ends.Listen(ends.Pods, c.cluster, 5060), ends.Listen(ends.Pods, c.pod, 5060)
		client, peer := ends.Listen(ends.Outside, c.outside, 0), ends.Listen(ends.Outside, c.outside, 0)
		for _, mode := range modes {
			expect := func(text, from, wantText, wantFrom string) {
				t.Helper()
				if text != wantText || from != wantFrom {
					t.Errorf("%s, %s: %q came from %s, want %q from %s", mode, topology.Families[i], text, from, wantText, wantFrom)
				}
			}
			vip := *server.LocalAddr().(*net.UDPAddr)
			vip.IP = net.ParseIP(c.vip)
			allow(mode, "192.0.2.0/24", "2001:db8::/64")
			ends.Send(client, "question", &vip)
			text, from := ends.Receive(server)
			expect(text, from, "question", c.outside)

			allow(mode, "198.51.100.0/24", "2001:db8:1::/64")
			ends.Send(client, "not allowed", &vip)
			ends.Send(pod, "own question", peer.LocalAddr())
			text, from = ends.Receive(peer)
			expect(text, from, "own question", c.vip)
			ends.Send(peer, "answer", &vip)
			text, from = ends.Receive(pod)
			expect(text, from, "answer", c.outside)

			allow(mode, "192.0.2.0/24", "2001:db8::/64")
			ends.Send(client, "allowed again", &vip)
			text, from = ends.Receive(server)
			expect(text, from, "allowed again", c.outside)
		}
	}
}
