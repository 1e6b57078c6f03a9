package egressip

import (
	"net/netip"
	"testing"

	v1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// TestOneHolder: whatever the status is, a node keeps its address as long as the
// items name it, and no node takes an address of another node, or retains one that it does not have.
func TestOneHolder(t *testing.T) {
	x := netip.MustParseAddr("172.18.0.33")
	names := []string{"", "a", "b", "c"}
	for _, node := range names {
		for _, from := range names {
			for entries := range 1 << 3 { // the nodes whose status entries list the address
				status := v1.EgressIPStatus{}
				if node != "" {
					status.Items = []v1.EgressIPStatusItem{{EgressIP: x.String(), Node: node, From: from}}
				}
				holders := 0
				for i, name := range names[1:] {
					if entries&(1<<i) != 0 {
						holders++
						status.Programmed = append(status.Programmed, v1.ProgrammedStatus{Node: name, EgressIPs: []string{x.String()}})
					}
				}
				for _, name := range names[1:] {
					has := Answers(status, name, x)
					next := Next(has, status, name, x)
					named := node == name || node != "" && from == name
					switch {
					case has && next.Answers() != named:
						t.Errorf("%s has it and becomes %s by %+v", name, next, status)
					case !has && next.Answers() && (holders > 0 || node != name || from != ""):
						t.Errorf("%s becomes %s by %+v", name, next, status)
					case !has && node == name && from == "" && holders == 0 && next != Held:
						t.Errorf("%s, which nobody keeps from it, becomes %s by %+v", name, next, status)
					}
					if (next == Preparing) != (!has && Prepares(status, name, x)) {
						t.Errorf("%s becomes %s and prepares: %t", name, next, Prepares(status, name, x))
					}
				}
			}
		}
	}
}
