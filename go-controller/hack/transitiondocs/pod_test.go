package main

import (
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
)

// TestNoLeak: in no situation does the pod's chassis send the traffic of a pod that is running, or may start, to a
// node that does not translate it.
func TestNoLeak(t *testing.T) {
	for _, sc := range scenarios() {
		all, err := sc.explore()
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range all {
			if gate(s.Steering) == waits {
				continue
			}
			for _, n := range []egressip.Placement{nodeA, nodeB} {
				_, translates := s.Applied.NATs[egressip.Site{Pod: podAddr, Node: n.Node}]
				for _, hop := range s.Applied.Policies[podAddr].Hops {
					if hop == n.NextHop && !translates {
						t.Errorf("%s, row %d: led to %s, which does not translate yet", sc.title, i+1, n.Node)
					}
				}
			}
		}
	}
}

// TestEnds: whatever happens first, each scenario reaches a final situation in which nothing is left to be done,
// and all final situations are the same.
func TestEnds(t *testing.T) {
	for _, sc := range scenarios() {
		all, err := sc.explore()
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for _, s := range all {
			if len(s.next) > 0 {
				continue
			}
			ends++
			if !s.Plan().Done {
				t.Errorf("%s ends with policy %s and translations %s, and is not done", sc.title, policy(s.Steering), translations(s.Steering))
			}
		}
		if ends != 1 {
			t.Errorf("%s has %d ends", sc.title, ends)
		}
	}
}
