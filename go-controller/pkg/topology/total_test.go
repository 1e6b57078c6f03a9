package topology_test

import (
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Whatever an address or prefix is, nothing here panics, and invalid input results in
// nothing.
func TestNonsenseHasNoAddresses(t *testing.T) {
	full := netip.MustParsePrefix("10.244.77.0/32")
	for _, p := range []netip.Prefix{
		{}, full, netip.MustParsePrefix("fd00::/128"), netip.MustParsePrefix("::ffff:10.244.0.0/127"),
		netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 33), netip.PrefixFrom(netip.Addr{}, 8),
	} {
		for _, f := range []func(netip.Prefix) netip.Addr{
			topology.RouterAddr, topology.ManagementAddr, topology.LocalServiceAddr, topology.HairpinAddr,
		} {
			if a := f(p); a.IsValid() && !p.Contains(a) {
				t.Errorf("%v has the address %v", p, a)
			}
			topology.MACOf(f(p))
		}
		n := topology.Node{Subnets: []netip.Prefix{p}, Host: []netip.Prefix{p}}
		for _, a := range n.ManagementAddrs() {
			if !a.IsValid() {
				t.Errorf("%v has an invalid management address", p)
			}
		}
		n.HostAddr(p)
	}
	if a := topology.ManagementAddr(full); a.IsValid() {
		t.Errorf("%v has the management address %v", full, a)
	}
}

func TestMACOf(t *testing.T) {
	for text, want := range map[string]string{
		"10.244.1.2": "0a:58:0a:f4:01:02", "::ffff:10.244.1.2": "0a:58:0a:f4:01:02",
		"fd00:10:244:2::102": "0a:58:00:00:01:02", "fe80::1%eth0": "0a:58:00:00:00:01",
	} {
		if got := topology.MACOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s has %s, want %s", text, got, want)
		}
	}
	if got := topology.MACOf(netip.Addr{}); got != "0a:58:00:00:00:00" {
		t.Errorf("no address has %s", got)
	}
}
