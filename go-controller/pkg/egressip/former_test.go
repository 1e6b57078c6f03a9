package egressip

import (
	"maps"
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestArriving: an address counts as arriving until some node has taken it, whichever node is to do so.
func TestArriving(t *testing.T) {
	const text = "172.18.0.33"
	addr := netip.MustParseAddr(text)
	d := Decision{Placements: []Placement{{Address: Address{Text: text, Addr: addr}, Node: "next"}}}
	item := func(node, from string) []v1.EgressIPStatusItem {
		return []v1.EgressIPStatusItem{{Node: node, EgressIP: text, From: from}}
	}
	entry := func(node string) []v1.ProgrammedStatus {
		return []v1.ProgrammedStatus{{Node: node, EgressIPs: []string{text}}}
	}
	for name, c := range map[string]struct {
		status   v1.EgressIPStatus
		arriving bool
	}{
		"no item":                          {v1.EgressIPStatus{}, true},
		"no item, but an entry":            {v1.EgressIPStatus{Programmed: entry("former")}, true},
		"on its way":                       {v1.EgressIPStatus{Items: item("next", "")}, false},
		"never taken by the previous node": {v1.EgressIPStatus{Items: item("previous", "")}, true},
		"only a former holder has it":      {v1.EgressIPStatus{Items: item("previous", ""), Programmed: entry("former")}, true},
		"with the previous node":           {v1.EgressIPStatus{Items: item("previous", ""), Programmed: entry("previous")}, false},
		"still with the node before":       {v1.EgressIPStatus{Items: item("previous", "first"), Programmed: entry("first")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[netip.Addr]string{}
			if c.arriving {
				want[addr] = "next"
			}
			if got := d.Arriving(c.status); !maps.Equal(got, want) {
				t.Errorf("arriving %v, want %v", got, want)
			}
		})
	}
}
