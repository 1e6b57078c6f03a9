package noreroute

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/golden"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/nbshow"
)

func prefixes(text string) []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.FieldsSeq(text) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(text string) []netip.Addr {
	var out []netip.Addr
	for s := range strings.FieldsSeq(text) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

var networks = map[string]Network{
	"dual": {prefixes("10.244.0.0/16 fd00:10:244::/48"), prefixes("100.64.0.0/16 fd98::/64"),
		NodeLocal(prefixes("fd00:ec2::254/128"), nil)},
	"ipv4":    {prefixes("10.244.0.0/16"), prefixes("100.64.0.0/16 fd98::/64"), NodeLocal(nil, prefixes("169.254.169.0/29"))},
	"ipv6":    {prefixes("fd00:10:244::/48"), prefixes("100.64.0.0/16 fd98::/64"), NodeLocal(nil, nil)},
	"several": {Cluster: prefixes("10.244.0.0/16 10.128.0.0/14"), Join: prefixes("100.64.0.0/16")},
}

var hosts = addrs("172.18.0.4 fc00:f853:ccd:e793::4 10.1.0.4 172.18.0.4 172.18.0.3 fc00:f853:ccd:e793::3")

func TestRows(t *testing.T) {
	for name, n := range networks {
		var out strings.Builder
		out.WriteString(nbshow.PolicyList(PolicyRows(n)))
		out.WriteString("\nAddress sets\n")
		for _, rows := range [][]nb.Row{
			SetRows(n, EgressIPPods, nil),
			SetRows(n, EgressServicePods, addrs("fd00:10:244:3::7 10.244.2.7 10.244.0.5 10.244.2.7")),
			NodeRows(n, hosts),
		} {
			for _, r := range rows {
				set := r.Model.(*nbdb.AddressSet)
				fmt.Fprintf(&out, "%s: %s\n", set.Name, strings.Join(set.Addresses, " "))
			}
		}
		golden.Check(t, name, out.String())
	}
}

func TestRowIDsAreUnique(t *testing.T) {
	for name, n := range networks {
		seen := map[string]bool{}
		for _, r := range PolicyRows(n) {
			if seen[r.ID] {
				t.Errorf("%s: %q twice", name, r.ID)
			}
			seen[r.ID] = true
		}
	}
}

// Every set that a policy refers to has a row with exactly that name.
func TestPoliciesNameTheSets(t *testing.T) {
	for name, n := range networks {
		there := map[string]bool{}
		for _, s := range []Set{EgressIPPods, EgressServicePods, NodeIPs} {
			for _, r := range SetRows(n, s, nil) {
				there[r.Model.(*nbdb.AddressSet).Name] = true
			}
		}
		for _, r := range PolicyRows(n) {
			for w := range strings.FieldsSeq(strings.NewReplacer("(", " ", ")", " ").Replace(r.Model.(*nbdb.LogicalRouterPolicy).Match)) {
				if set, ok := strings.CutPrefix(w, "$"); ok && !there[set] {
					t.Errorf("%s: %s names %s, which is no set", name, r.ID, set)
				}
			}
		}
	}
}

func TestPodSet(t *testing.T) {
	p := NewPodSet()
	changes := 0
	p.Subscribe(func() {
		p.Addrs() // a subscriber may call this
		changes++
	})
	steps := []struct {
		do   func()
		want int
	}{
		{func() { p.Set("ns/a", addrs("10.244.0.5 10.244.0.6")) }, 1},
		{func() { p.Set("ns/a", addrs("10.244.0.5 10.244.0.6")) }, 1},
		{func() { p.Set("ns/b", addrs("10.244.0.5")) }, 2},
		{func() { p.Set("ns/c", nil) }, 2},
		{p.MarkSynced, 3},
		{p.MarkSynced, 3},
		{func() { p.Set("ns/a", nil) }, 4},
	}
	for i, s := range steps {
		s.do()
		if changes != s.want {
			t.Errorf("step %d: %d changes, want %d", i, changes, s.want)
		}
	}
	got, complete := p.Addrs()
	if !slices.Equal(got, addrs("10.244.0.5")) || !complete {
		t.Errorf("%v, %t", got, complete)
	}
	if !p.Has(addrs("10.244.0.5")[0]) || p.Has(addrs("10.244.0.6")[0]) {
		t.Error("the set does not have what one object of two selects, or has what none does")
	}
}
