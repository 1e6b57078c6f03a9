package openflow

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// TestFollowTranslations checks that the existing translations of both families and each change of
// them are reported, and that other flows do not matter.
func TestFollowTranslations(t *testing.T) {
	o := bridge(t)
	target := "unix:" + o.Dir + "/br0.mgmt"
	translate := func(match, to string) {
		t.Helper()
		o.Run("ovs-ofctl", "-OOpenFlow14", "add-flow", target,
			"table=44,priority=33,reg15=0x2,metadata=0x4,"+match+",actions=ct(commit,table=45,zone=NXM_NX_REG12[0..15],nat(src="+to+"))")
	}
	var many strings.Builder
	for i := range 3000 { // several messages
		fmt.Fprintf(&many, "table=44,priority=33,ip,nw_src=10.245.%d.%d,actions=ct(commit,table=45,zone=1,nat(src=172.18.0.9))\n", i/250, i%250)
	}
	file := filepath.Join(t.TempDir(), "flows")
	if err := os.WriteFile(file, []byte(many.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Run("ovs-ofctl", "-OOpenFlow14", "add-flows", target, file)
	translate("ip,nw_src=10.244.0.0/16", "172.18.0.4")
	translate("ip,nw_src=10.244.1.3", "172.18.0.33")
	translate("ipv6,ipv6_src=fd00:10:244:2::3", "fc00:f853:ccd:e793::33")
	translate("ip,nw_src=10.244.1.3,nw_dst=10.244.1.3", "10.96.0.9") // to itself through a Service
	seen := make(chan []host.Translation, 10)
	go New("br0", o.Dir).FollowTranslations(t.Context(), func(all []host.Translation) { seen <- all })
	is := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, tr := range eventually.Receive(t, what, seen) {
			if tr.To != netip.MustParseAddr("172.18.0.9") {
				got = append(got, tr.Source.String()+" "+tr.To.String())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	until := func(what string, n int) { // a list that arrives slowly is reported in parts
		t.Helper()
		for len(eventually.Receive(t, what, seen)) != n {
		}
	}
	until("what is there", 3003)
	translate("ip,nw_src=10.244.1.4", "172.18.0.33")
	is("one more", "10.244.0.0/16 172.18.0.4", "10.244.1.3/32 172.18.0.33", "10.244.1.4/32 172.18.0.33", "fd00:10:244:2::3/128 fc00:f853:ccd:e793::33")
	translate("ip,nw_src=10.244.1.3", "172.18.0.44")
	is("another", "10.244.0.0/16 172.18.0.4", "10.244.1.3/32 172.18.0.44", "10.244.1.4/32 172.18.0.33", "fd00:10:244:2::3/128 fc00:f853:ccd:e793::33")
	o.Run("ovs-ofctl", "-OOpenFlow14", "add-flow", target, "table=11,priority=90,arp,arp_tpa=172.18.0.44,actions=drop")
	o.Run("ovs-ofctl", "-OOpenFlow14", "--strict", "del-flows", target, "table=44,priority=33,ip,reg15=0x2,metadata=0x4,nw_src=10.244.1.3")
	is("one less", "10.244.0.0/16 172.18.0.4", "10.244.1.4/32 172.18.0.33", "fd00:10:244:2::3/128 fc00:f853:ccd:e793::33")
	o.Run("ovs-ofctl", "-OOpenFlow14", "del-flows", target)
	until("none", 0)
}
