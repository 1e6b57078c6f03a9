package app

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/iptables"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/netnstest"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// TestChainsInOrder: of several chains that translate, the first one wins, and their order is the
// order of precedence of the features.
func TestChainsInOrder(t *testing.T) {
	chains := slices.DeleteFunc(chainsOf([]topology.Family{topology.IPv4, topology.IPv6}), func(c host.Chain) bool {
		return !slices.ContainsFunc(c.Jumps, func(j host.Jump) bool { return j.From == "POSTROUTING" }) || c.Table != "nat"
	})
	for _, f := range topology.Families {
		var names []string
		at := map[int]string{}
		ours := slices.DeleteFunc(slices.Clone(chains), func(c host.Chain) bool { return c.Family != f })
		slices.SortFunc(ours, func(a, b host.Chain) int { return cmp.Compare(a.Position, b.Position) })
		for _, c := range ours {
			names = append(names, c.Name)
			if other, ok := at[c.Position]; ok {
				t.Errorf("%s: %s and %s have one position", f, other, c.Name)
			}
			at[c.Position] = c.Name
		}
		const want = "OVN-KUBE-EGRESS-SVC OVN-KUBE-EGRESS-IP-MULTI-NIC OVN-KUBE-SNAT-MGMTPORT OVN-KUBE-MASQ"
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: the order is %s, want %s", f, got, want)
		}
	}
}

// TestCleanupLeavesNoChain: with the nftables backend also the built-in chains, which come into being with our jumps, are gone
// after the clean-up.
func TestCleanupLeavesNoChain(t *testing.T) {
	ns := netnstest.New(t)
	w, err := iptables.New(chainsOf(topology.Families))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rules := ns.Run("nft", "list", "ruleset"); !strings.Contains(rules, host.ChainPrefix) {
		t.Fatalf("there is nothing to clean up:\n%s", rules)
	}
	if err := iptables.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rules := ns.Run("nft", "list", "ruleset"); strings.Contains(rules, "chain ") {
		t.Errorf("after the clean-up:\n%s", rules)
	}
}
