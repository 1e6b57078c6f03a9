package openflow

import (
	"net/netip"
	"slices"
	"testing"
)

// TestTranslates finds OVN's translations of both families, and does not confuse addresses of which
// one is a prefix of the other as text.
func TestTranslates(t *testing.T) {
	o := bridge(t)
	target := "unix:" + o.Dir + "/br0.mgmt"
	for _, flow := range []string{
		"table=44,priority=33,ip,nw_src=10.244.1.3,actions=ct(commit,table=45,zone=1,nat(src=172.18.0.33))",
		"table=44,priority=33,ipv6,ipv6_src=fd00:10:244:2::3,actions=ct(commit,table=45,zone=1,nat(src=fc00:f853:ccd:e793::33,random))",
		"table=11,priority=90,arp,arp_tpa=172.18.0.44,actions=drop",
	} {
		o.Run("ovs-ofctl", "-OOpenFlow14", "add-flow", target, flow)
	}
	var all []netip.Addr
	for _, text := range []string{"172.18.0.3", "172.18.0.33", "172.18.0.44", "fc00:f853:ccd:e793::3", "fc00:f853:ccd:e793::33"} {
		all = append(all, netip.MustParseAddr(text))
	}
	w := New("br0", o.Dir)
	if got, err := w.Translates(t.Context(), all); err != nil || !slices.Equal(got, []netip.Addr{all[1], all[4]}) {
		t.Errorf("translates to %v, %v", got, err)
	}
	o.Run("ovs-ofctl", "-OOpenFlow14", "del-flows", target)
	if got, err := w.Translates(t.Context(), all); err != nil || len(got) > 0 {
		t.Errorf("translates to %v, %v", got, err)
	}
	if _, err := New("none", o.Dir).Translates(t.Context(), all); err == nil {
		t.Error("a bridge that is not there translates to nothing")
	}
}
