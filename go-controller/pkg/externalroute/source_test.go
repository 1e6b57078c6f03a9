package externalroute

import (
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestSourceOfOtherFamily: an address of the other family, or another prefix length, does not end a session.
func TestSourceOfOtherFamily(t *testing.T) {
	n := topology.Node{Gateway: topology.Gateway{MAC: "02:42:ac:12:00:02",
		Addrs: []netip.Prefix{netip.MustParsePrefix("172.18.0.2/16"), netip.MustParsePrefix("fc00::2/64")}}}
	gateway := netip.MustParseAddr("172.18.0.51")
	before := sentFrom(n, gateway)
	n.Gateway.Addrs = []netip.Prefix{netip.MustParsePrefix("172.18.0.2/24"), netip.MustParsePrefix("fc00::9/64")}
	if after := sentFrom(n, gateway); after != before {
		t.Errorf("sent from %s, before from %s", after, before)
	}
}
