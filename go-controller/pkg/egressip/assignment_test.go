package egressip

import (
	"net/netip"
	"slices"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func list(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func TestGated(t *testing.T) {
	node := topology.Node{
		Name:    "n1",
		Primary: []netip.Prefix{netip.MustParsePrefix("172.18.0.3/16"), netip.MustParsePrefix("fc00::3/64")},
		Host:    []netip.Prefix{netip.MustParsePrefix("172.18.0.100/32")},
	}
	items := func(addrs ...string) v1.EgressIPStatus {
		var s v1.EgressIPStatus
		for _, a := range addrs {
			s.Items = append(s.Items, v1.EgressIPStatusItem{EgressIP: a, Node: "n2"})
		}
		return s
	}
	all := []*v1.EgressIP{
		{Status: items("172.18.0.33", "172.18.0.44", "10.9.0.1", "no address", "fc00::33")},
		// The node's own addresses, which its gateway router needs.
		{Status: items("172.18.0.3", "172.18.0.100", "172.18.0.33")},
		// An address without a node was not accepted, or is in no translation.
		{Spec: v1.EgressIPSpec{EgressIPs: []v1.Address{"172.18.0.66"}}},
		{Status: v1.EgressIPStatus{Items: []v1.EgressIPStatusItem{{EgressIP: "172.18.0.55", Node: "n2"}}}},
	}
	held := func(a netip.Addr) bool { return a == netip.MustParseAddr("172.18.0.44") }
	if got := SuppressedAddrs(all, node, held); !slices.Equal(got, list("172.18.0.33", "172.18.0.55", "fc00::33")) {
		t.Errorf("got %v", got)
	}
	// A node whose network is unknown suppresses all addresses.
	if got := SuppressedAddrs(all[:1], topology.Node{Name: "n1"}, held); !slices.Equal(got, list("10.9.0.1", "172.18.0.33", "fc00::33")) {
		t.Errorf("got %v", got)
	}
}

func TestShareOf(t *testing.T) {
	node := topology.Node{Name: "n1", Primary: []netip.Prefix{netip.MustParsePrefix("172.18.0.3/16")}}
	status := v1.EgressIPStatus{Items: []v1.EgressIPStatusItem{
		{EgressIP: "172.18.0.33", Node: "n1", Network: "172.18.0.0/16"},
		{EgressIP: "172.18.5.1", Node: "n1", Network: "172.18.5.0/24"}, // another link, with the longer prefix
		{EgressIP: "172.18.0.44", Node: "n1"},
		{EgressIP: "10.9.0.1", Node: "n1"},
		{EgressIP: "172.18.0.55", Node: "n2", Network: "172.18.0.0/16"},
		{EgressIP: "no address", Node: "n1"},
	}}
	s := AssignmentOf(status, node)
	if !slices.Equal(s.Primary, list("172.18.0.33", "172.18.0.44")) || !slices.Equal(s.Secondary, list("10.9.0.1", "172.18.5.1")) {
		t.Errorf("got %+v", s)
	}
}
