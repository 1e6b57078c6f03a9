package egressservice

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func TestObjection(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*place.Node, *Service)
		want   place.Reason
	}{
		{"nothing", func(*place.Node, *Service) {}, ""},
		{"it is the host", func(_ *place.Node, s *Service) { s.Host = "n1" }, ""},
		{"the selector", func(n *place.Node, _ *Service) { n.Labels = nil }, rejectSelector},
		{"not Ready", func(n *place.Node, _ *Service) { n.Ready = false }, place.NotReady},
		{"unreachable", func(n *place.Node, _ *Service) { n.Reach = place.Dead }, place.Unreachable},
		{"no subnet", func(n *place.Node, _ *Service) { n.Subnets = nil }, rejectNoSubnet},
		{"cordoned", func(n *place.Node, _ *Service) { n.Unschedulable = true }, rejectCordoned},
		{"cordoned, and the host", func(n *place.Node, s *Service) { n.Unschedulable, s.Host = true, "n1" }, rejectCordoned},
		{"no endpoint", func(_ *place.Node, s *Service) { s.LocalOnly = true }, rejectNoEndpoint},
		{"an endpoint", func(_ *place.Node, s *Service) {
			s.LocalOnly, s.Endpoints = true, []Endpoint{{Addr: netip.MustParseAddr("10.244.0.5"), Node: "n1", Ready: true}}
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := place.Node{Node: topology.Node{Name: "n1", Ready: true, Labels: map[string]string{"zone": "a"},
				Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}}, Reach: place.Alive}
			s := Service{Key: "shop/checkout", Selector: labels.SelectorFromSet(labels.Set{"zone": "a"})}
			tc.change(&n, &s)
			if got := Objection(n, s); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
