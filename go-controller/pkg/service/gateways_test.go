package service_test

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// gateway4 and gateway6 are external gateways.
var (
	gateway4 = netip.MustParseAddr("172.18.0.51")
	gateway6 = netip.MustParseAddr("fc00:f853:ccd:e793::51")
)

// withGateways decodes a Service whose pods have external gateways. An egress feature
// reroutes those on n1.
func withGateways(t *testing.T, gateways []netip.Addr, change ...func(*corev1.Service)) service.Service {
	t.Helper()
	n1 := node(1, topology.GatewayLocal).Subnets
	pods := func(a netip.Addr) (own, led bool) { return true, n1[0].Contains(a) || n1[1].Contains(a) }
	s, ok := service.Decode(service.Snapshot{Service: object(change...), Slices: onTwo(), Pod: pods, Gateways: gateways}, config)
	if !ok {
		t.Fatal("not ours")
	}
	return s
}

// TestGateways: for pods with external gateways, gateway routers handle traffic that
// preserves the client's address, in any gateway mode, and no other.
func TestGateways(t *testing.T) {
	for name, policy := range map[string]func(*corev1.Service){"cluster": func(*corev1.Service) {}, "local": externalLocal} {
		for _, mode := range modes {
			t.Run(name+"-"+string(mode), func(t *testing.T) {
				s := withGateways(t, []netip.Addr{gateway4, gateway6}, loadBalancer, policy)
				golden.Check(t, "gateways-"+name+"-"+string(mode), show(s, cluster(mode)))
			})
		}
	}
}

// TestGatewaysOfOneFamily: gateways of one family do not affect the other.
func TestGatewaysOfOneFamily(t *testing.T) {
	for _, mode := range modes {
		none := show(withGateways(t, nil, loadBalancer, externalLocal), cluster(mode))
		all := show(withGateways(t, []netip.Addr{gateway4, gateway6}, loadBalancer, externalLocal), cluster(mode))
		one := show(withGateways(t, []netip.Addr{gateway4}, loadBalancer, externalLocal), cluster(mode))
		for line := range strings.Lines(one) {
			want := all
			if strings.Contains(line, "IPv6") || strings.Contains(line, "fd") {
				want = none
			}
			if !strings.Contains(want, line) {
				t.Errorf("%s: with gateways of IPv4 only: %s", mode, line)
			}
		}
	}
}

// TestGatewaysTurn: when gateways are added or removed, UDP connections change their path
// too.
func TestGatewaysTurn(t *testing.T) {
	udp := func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	for _, c := range []struct {
		policy func(*corev1.Service)
		mode   topology.GatewayMode
		turns  bool
	}{
		{externalLocal, topology.GatewayLocal, true},
		{externalLocal, topology.GatewayShared, false},
		{func(*corev1.Service) {}, topology.GatewayLocal, false},
		{func(*corev1.Service) {}, topology.GatewayShared, true},
	} {
		of := func(gateways ...netip.Addr) service.Bindings {
			return service.NodeStateOf(withGateways(t, gateways, udp, loadBalancer, c.policy), config, node(1, c.mode)).UDP
		}
		if without, with := of(), of(gateway4); without.Removed(with) != c.turns || with.Removed(without) != c.turns {
			t.Errorf("%s, local %v: entries of the other way are stale: %v and %v", c.mode, c.turns, without.Removed(with), with.Removed(without))
		}
	}
}
