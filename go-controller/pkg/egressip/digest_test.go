package egressip

import (
	"fmt"
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestDigestOfShare: adding or removing a pod changes the digest for the pods of
// its share only; different given addresses change all of it.
func TestDigestOfShare(t *testing.T) {
	given := addrs("172.19.0.33", "fd19::33")
	var pods []netip.Addr
	for i := range 100 {
		pods = append(pods, netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00:10:244:1::%d", i+1)))
	}
	all, elsewhere := Digest(given, pods), Digest(given[:1], pods)
	for i, gone := range pods {
		less := Digest(given, append(append([]netip.Addr{}, pods[:i]...), pods[i+1:]...))
		same := 0
		for _, p := range pods {
			if SameShare(p, all, less) {
				same++
			}
			if SameShare(p, all, less) == (share(p) == share(gone)) {
				t.Fatalf("without %s, of %s the same is %v", gone, p, SameShare(p, all, less))
			}
			if SameShare(p, all, elsewhere) || SameShare(p, all, "") || SameShare(p, "", "") || SameShare(p, all[1:], all[1:]) {
				t.Fatalf("%s is said to have rules that it has not", p)
			}
		}
		if same < len(pods)*3/4 {
			t.Fatalf("without %s only %d of %d are the same", gone, same, len(pods))
		}
	}
}

// TestChurnHoldsUpNobody: a pod is led to a secondary network even if the node's status entry covers
// a different set of pods, as long as its own share is the same.
func TestChurnHoldsUpNobody(t *testing.T) {
	for _, family := range []struct{ egress, pod, format string }{
		{"172.19.0.33", "10.244.0.3", "10.244.1.%d"}, {"fd19::33", "fd00:10:244:1::3", "fd00:10:244:2::%d"},
	} {
		egress, pod := addrs(family.egress), addrs(family.pod)
		d := Decision{Placements: []Placement{{Address: Address{Addr: egress[0]}, Node: "n", NextHop: addrs("10.244.1.2")[0]}}}
		led := 0
		for i := range 100 {
			late := netip.MustParseAddr(fmt.Sprintf(family.format, i+4))
			status := v1.EgressIPStatus{Programmed: []v1.ProgrammedStatus{
				{Node: "n", EgressIPs: []string{family.egress}, Digest: Digest(egress, pod)}}}
			paths := d.Paths(status, pod, func(given []netip.Addr) string { return Digest(given, append([]netip.Addr{late}, pod...)) }, nobody)
			if paths[0].Programmed {
				led++
			}
			others := d.Paths(status, []netip.Addr{late}, func(given []netip.Addr) string { return Digest(given, append([]netip.Addr{late}, pod...)) }, nobody)
			if others[0].Programmed {
				t.Errorf("%s is led to the node, which has no rules for it", late)
			}
		}
		if led < 90 {
			t.Errorf("led to the node while %d of 100 others came", led)
		}
	}
}
