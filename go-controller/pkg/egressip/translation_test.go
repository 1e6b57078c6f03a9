package egressip

import (
	"net/netip"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestStaleTranslations: a connection of a pod keeps an address only as long as the pod has it.
func TestStaleTranslations(t *testing.T) {
	for _, f := range []struct{ name, cluster, own, gateway, a, b, held, outside, host, metadata, pod, other, none string }{
		{"IPv4", "10.244.0.0/16", "172.18.0.3/16", "172.18.0.3", "172.18.0.33", "172.18.0.34", "172.18.0.35", "192.0.2.1", "172.18.0.2", "169.254.169.254", "10.244.1.3", "10.244.1.4", "10.245.0.9"},
		{"IPv6", "fd00:10:244::/48", "fc00:f853:ccd:e793::3/64", "fc00:f853:ccd:e793::3", "fc00:f853:ccd:e793::33", "fc00:f853:ccd:e793::34", "fc00:f853:ccd:e793::35",
			"2001:db8::1", "fc00:f853:ccd:e793::2", "fe80::1", "fd00:10:244:1::3", "fd00:10:244:1::4", "fd00:11::9"},
	} {
		t.Run(f.name, func(t *testing.T) {
			a := netip.MustParseAddr
			node := topology.Node{Name: "n", Primary: prefixes(f.own), Gateway: topology.Gateway{Addrs: prefixes(f.own)}}
			rows := []host.Translation{
				{Source: netip.MustParsePrefix(f.cluster), To: a(f.gateway)},
				{Source: topology.HostPrefix(a(f.pod)), To: a(f.a)},
			}
			held := map[netip.Addr]bool{a(f.a): true, a(f.b): false, a(f.held): true, a("10.10.10.9"): true}
			is := NewTranslations(rows, node, held, []netip.Addr{a(f.host)}, topology.LinkLocal)
			for _, c := range []struct {
				what, src, dst, to string
				stale              bool
			}{
				{"what it has", f.pod, f.outside, f.a, false},
				{"the node's, from before it was selected", f.pod, f.outside, f.gateway, true},
				{"another that the node holds", f.pod, f.outside, f.held, true},
				{"one that nobody holds here", f.pod, f.outside, f.b, false},
				{"to a node", f.pod, f.host, f.gateway, false},
				{"to a node, translated once more behind the router", f.other, f.host, f.a, false},
				{"to a cloud's metadata", f.pod, f.metadata, f.gateway, false},
				{"that of another pod", f.other, f.outside, f.a, true},
				{"one that is held and that no pod has", f.other, f.outside, f.held, true},
				{"the node's", f.other, f.outside, f.gateway, false},
				{"untranslated here, by the host", f.none, f.outside, f.gateway, false},
				{"untranslated here, with an egress address", f.none, f.outside, f.a, true},
				{"an address of another network, by the host", f.pod, f.outside, "10.10.10.9", false},
			} {
				if got := is.Stale(a(c.src), a(c.dst), a(c.to)); got != c.stale {
					t.Errorf("%s: stale %v, want %v", c.what, got, c.stale)
				}
			}
			if NewTranslations(nil, node, held, nil, nil).Stale(a(f.pod), a(f.outside), a(f.a)) {
				t.Error("stale, though nothing is known")
			}
		})
	}
}
