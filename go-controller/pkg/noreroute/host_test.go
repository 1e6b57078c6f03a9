package noreroute

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host/hostfake"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestMarkRules: one rule for each address, and each range, in the families that pods have.
func TestMarkRules(t *testing.T) {
	nodes := []netip.Addr{netip.MustParseAddr("172.18.0.4"), netip.MustParseAddr("fc00::4"), netip.MustParseAddr("172.18.0.3"),
		netip.MustParseAddr("172.18.0.4")}
	chains := hostfake.NewChains(Chains([]topology.Family{topology.IPv4}))
	if err := chains.Apply(t.Context(), Feature, MarkRules(nodes, prefixes("169.254.0.0/16 fe80::/10"), []topology.Family{topology.IPv4})); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range chains.Rules(markChain(topology.IPv4)) {
		got = append(got, string(r))
	}
	want := []string{
		"-d 172.18.0.3/32 -i ovn-k8s-mp0 -j MARK --set-xmark 0x3f0/0xffffffff",
		"-d 172.18.0.4/32 -i ovn-k8s-mp0 -j MARK --set-xmark 0x3f0/0xffffffff",
		"-d 169.254.0.0/16 -i ovn-k8s-mp0 -j MARK --set-xmark 0x3f0/0xffffffff",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
