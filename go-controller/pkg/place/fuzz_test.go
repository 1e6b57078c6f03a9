package place_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/place"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/fuzzed"
)

// FuzzAssign assigns claims to arbitrary nodes.
func FuzzAssign(f *testing.F) {
	for _, seed := range []string{"", "\x02\x00\x00\x00\x01\x02\x03", "\x02\x01\x01\x01\x00\x05\x01\x02\x03\x01\x02\x03\x01\x02\x03", "the quick brown fox jumps"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzed.New(data)
		var nodes []place.Node
		for _, n := range fuzzed.Known(s.Nodes()) {
			n.Draining = s.Some(4)
			nodes = append(nodes, place.Node{Node: n, Reach: fuzzed.One(s, place.Alive, place.Unknown, place.Dead)})
		}
		var claims []place.Claim
		for i := range s.Pick(6) {
			c := place.Claim{Key: fmt.Sprint("claim", i), Group: fuzzed.One(s, "", "a", "b"), Prefer: s.NodeName()}
			if not := s.NodeName(); s.Some(2) {
				c.Allow = func(n place.Node) place.Reason {
					if n.Name == not {
						return "not here"
					}
					return ""
				}
			}
			if not := s.NodeName(); s.Some(2) {
				c.Avoid = func(n place.Node) place.Reason {
					if n.Name == not {
						return "rather not here"
					}
					return ""
				}
			}
			claims = append(claims, c)
		}
		results := place.Assign(nodes, claims)
		if !reflect.DeepEqual(results, place.Assign(fuzzed.Shuffled(s, nodes), fuzzed.Shuffled(s, claims))) {
			t.Error("the result depends on the order of nodes or claims")
		}
		together := map[[2]string]string{}
		for _, c := range claims {
			r, ok := results[c.Key]
			if !ok {
				t.Fatalf("no result for %s", c.Key)
			}
			r.Explain()
			if r.Node == "" {
				continue
			}
			i := slices.IndexFunc(nodes, func(n place.Node) bool { return n.Name == r.Node })
			if i < 0 || !nodes[i].Ready || nodes[i].Reach == place.Dead || c.Allow != nil && c.Allow(nodes[i]) != "" {
				t.Errorf("%s is given to %q", c.Key, r.Node)
			}
			if at := [2]string{c.Group, r.Node}; c.Group != "" {
				if other := together[at]; other != "" {
					t.Errorf("%s and %s of group %s are both on %s", c.Key, other, c.Group, r.Node)
				}
				together[at] = c.Key
			}
		}
	})
}
