package place

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

func alive(names ...string) []Node {
	var nodes []Node
	for _, n := range names {
		nodes = append(nodes, Node{Node: topology.Node{Name: n, Ready: true}, Reach: Alive})
	}
	return nodes
}

// only allows the named nodes.
func only(names ...string) func(Node) Reason {
	return func(n Node) Reason {
		if slices.Contains(names, n.Name) {
			return ""
		}
		return "not wanted"
	}
}

// avoid prefers other nodes to the named ones.
func avoid(names ...string) func(Node) Reason {
	return func(n Node) Reason {
		if slices.Contains(names, n.Name) {
			return "rather not"
		}
		return ""
	}
}

func nodesOf(results map[string]Result) map[string]string {
	m := map[string]string{}
	for k, r := range results {
		m[k] = r.Node
	}
	return m
}

func TestAssign(t *testing.T) {
	down := func(nodes []Node, name string, change func(*Node)) []Node {
		for i := range nodes {
			if nodes[i].Name == name {
				change(&nodes[i])
			}
		}
		return nodes
	}
	for _, c := range []struct {
		name   string
		nodes  []Node
		claims []Claim
		want   map[string]string
	}{
		{"nothing", nil, nil, map[string]string{}},
		{"no nodes", nil, []Claim{{Key: "a"}}, map[string]string{"a": ""}},
		{"stays although others are idle", alive("n1", "n2", "n3"),
			[]Claim{{Key: "a", Prefer: "n1"}, {Key: "b", Prefer: "n1"}, {Key: "c", Prefer: "n1"}},
			map[string]string{"a": "n1", "b": "n1", "c": "n1"}},
		{"new ones go to the idle", alive("n1", "n2"),
			[]Claim{{Key: "a", Prefer: "n1"}, {Key: "b", Prefer: "n1"}, {Key: "c"}, {Key: "d"}},
			map[string]string{"a": "n1", "b": "n1", "c": "n2", "d": "n2"}},
		{"not ready", down(alive("n1", "n2"), "n1", func(n *Node) { n.Ready = false }),
			[]Claim{{Key: "a", Prefer: "n1"}}, map[string]string{"a": "n2"}},
		{"dead", down(alive("n1", "n2"), "n1", func(n *Node) { n.Reach = Dead }),
			[]Claim{{Key: "a", Prefer: "n1"}}, map[string]string{"a": "n2"}},
		{"unknown keeps what it has and gets nothing new", down(alive("n1"), "n1", func(n *Node) { n.Reach = Unknown }),
			[]Claim{{Key: "a", Prefer: "n1"}, {Key: "b"}}, map[string]string{"a": "n1", "b": ""}},
		{"deleted", alive("n2"), []Claim{{Key: "a", Prefer: "n1"}}, map[string]string{"a": "n2"}},
		{"no longer allowed", alive("n1", "n2"), []Claim{{Key: "a", Prefer: "n1", Allow: only("n2")}}, map[string]string{"a": "n2"}},
		{"group apart", alive("n1", "n2"), []Claim{{Key: "a", Group: "g"}, {Key: "b", Group: "g", Prefer: "n1"}, {Key: "c", Group: "g"}},
			map[string]string{"a": "n2", "b": "n1", "c": ""}},
		{"group that once shared a node", alive("n1", "n2"), []Claim{{Key: "a", Group: "g", Prefer: "n1"}, {Key: "b", Group: "g", Prefer: "n1"}},
			map[string]string{"a": "n1", "b": "n2"}},
		{"the choosy one first", alive("n1", "n2"), []Claim{{Key: "a", Group: "g"}, {Key: "b", Group: "g", Allow: only("n1")}},
			map[string]string{"a": "n2", "b": "n1"}},
		{"the choosy one first, the other way round", alive("n1", "n2"), []Claim{{Key: "a", Group: "g"}, {Key: "b", Group: "g", Allow: only("n2")}},
			map[string]string{"a": "n1", "b": "n2"}},
		{"avoided, and another can", alive("n1", "n2"), []Claim{{Key: "a", Prefer: "n1", Avoid: avoid("n1")}}, map[string]string{"a": "n2"}},
		{"avoided, and nobody else can", down(alive("n1", "n2"), "n2", func(n *Node) { n.Reach = Unknown }),
			[]Claim{{Key: "a", Prefer: "n1", Avoid: avoid("n1")}}, map[string]string{"a": "n1"}},
		{"avoided by all", alive("n1", "n2"), []Claim{{Key: "a", Prefer: "n1", Avoid: avoid("n1", "n2")}, {Key: "b", Avoid: avoid("n1", "n2")}},
			map[string]string{"a": "n1", "b": ""}},
		{"avoided and no longer allowed", alive("n1"), []Claim{{Key: "a", Prefer: "n1", Avoid: avoid("n1"), Allow: only("n2")}},
			map[string]string{"a": ""}},
		{"avoided and dead", down(alive("n1"), "n1", func(n *Node) { n.Reach = Dead }),
			[]Claim{{Key: "a", Prefer: "n1", Avoid: avoid("n1")}}, map[string]string{"a": ""}},
		{"avoided, and its group is everywhere else", alive("n1", "n2"),
			[]Claim{{Key: "a", Group: "g", Prefer: "n1", Avoid: avoid("n1")}, {Key: "b", Group: "g", Prefer: "n2"}},
			map[string]string{"a": "n1", "b": "n2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, nodesOf(Assign(c.nodes, c.claims))); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestEveryRejectedNodeHasItsReason(t *testing.T) {
	nodes := alive("n1", "n2", "n3", "n4", "n5")
	nodes[0].Ready = false
	nodes[1].Reach = Dead
	nodes[2].Reach = Unknown
	r := Assign(nodes, []Claim{{Key: "a", Group: "g", Allow: only("n1", "n2", "n3", "n4")}, {Key: "b", Group: "g", Prefer: "n4"}})["a"]
	one := func(node string) Rejection { return Rejection{Count: 1, First: []string{node}} }
	want := map[Reason]Rejection{NotReady: one("n1"), Unreachable: one("n2"), NotProbedYet: one("n3"), GroupOnNode: one("n4"), "not wanted": one("n5")}
	if r.Node != "" {
		t.Fatalf("placed on %s", r.Node)
	}
	if d := cmp.Diff(want, r.Rejected); d != "" {
		t.Error(d)
	}
	if got, want := r.Explain(), "n1: not ready; n2: unreachable; n3: reachability not known yet; "+
		"n4: serves another of the same group; n5: not wanted"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := (Result{}).Explain(); got != "no nodes" {
		t.Errorf("without nodes: %q", got)
	}
	many := Assign(alive("n1", "n2", "n3", "n4", "n5", "n6", "n7"), []Claim{{Key: "a", Allow: only()}})["a"]
	if got, want := many.Explain(), "n1, n2, n3, n4, n5, ...: not wanted"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// random returns random nodes and claims.
func random(r *rand.Rand) ([]Node, []Claim) {
	var nodes []Node
	for i := range 1 + r.IntN(6) {
		nodes = append(nodes, Node{
			Node:  topology.Node{Name: fmt.Sprintf("n%d", i), Ready: r.IntN(8) > 0},
			Reach: []Reach{Alive, Alive, Alive, Dead, Unknown}[r.IntN(5)],
		})
	}
	var claims []Claim
	for i := range r.IntN(12) {
		c := Claim{Key: fmt.Sprintf("c%d", i)}
		if r.IntN(2) == 0 {
			c.Prefer = fmt.Sprintf("n%d", r.IntN(7))
		}
		if r.IntN(3) == 0 {
			c.Group = fmt.Sprintf("g%d", r.IntN(2))
		}
		if r.IntN(3) == 0 {
			c.Allow = only(fmt.Sprintf("n%d", r.IntN(6)), fmt.Sprintf("n%d", r.IntN(6)))
		}
		if r.IntN(4) == 0 {
			c.Avoid = avoid(fmt.Sprintf("n%d", r.IntN(6)), fmt.Sprintf("n%d", r.IntN(6)))
		}
		claims = append(claims, c)
	}
	return nodes, claims
}

func TestPropertiesOfAssign(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		nodes, claims := random(r)
		got := Assign(nodes, claims)
		checkValid(t, nodes, claims, got)

		// The order of the input does not matter.
		n2, c2 := slices.Clone(nodes), slices.Clone(claims)
		r.Shuffle(len(n2), func(i, j int) { n2[i], n2[j] = n2[j], n2[i] })
		r.Shuffle(len(c2), func(i, j int) { c2[i], c2[j] = c2[j], c2[i] })
		if d := cmp.Diff(got, Assign(n2, c2)); d != "" {
			t.Fatalf("another order, another answer: %s", d)
		}

		// With the result in the statuses, Assign returns the same result again; and a node
		// that comes back or is new takes nothing away from others.
		for i := range claims {
			claims[i].Prefer = got[claims[i].Key].Node
		}
		if d := cmp.Diff(nodesOf(got), nodesOf(Assign(nodes, claims))); d != "" {
			t.Fatalf("not stable: %s", d)
		}
		again := Assign(append(slices.Clone(nodes), alive("new")...), claims)
		for _, c := range claims {
			was, is := got[c.Key].Node, again[c.Key].Node
			if was != "" && is != was && (c.Avoid == nil || c.Avoid(Node{Node: topology.Node{Name: was}}) == "") {
				t.Fatalf("%s moved from %s to %s when a node came", c.Key, was, is)
			}
		}
	}
}

func checkValid(t *testing.T, nodes []Node, claims []Claim, got map[string]Result) {
	t.Helper()
	byName := map[string]Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	groups := map[string]bool{}
	for _, c := range claims {
		r, ok := got[c.Key]
		if !ok {
			t.Fatalf("no answer for %s", c.Key)
		}
		if r.Node == "" {
			rejected := 0
			for _, nodes := range r.Rejected {
				rejected += nodes.Count
			}
			if rejected != len(nodes) {
				t.Fatalf("%s: %d nodes, %d rejected", c.Key, len(nodes), rejected)
			}
			continue
		}
		n := byName[r.Node]
		if !n.Ready || n.Reach == Dead || n.Reach == Unknown && c.Prefer != n.Name || c.Allow != nil && c.Allow(n) != "" {
			t.Fatalf("%s was given to %+v", c.Key, n)
		}
		if c.Avoid != nil && c.Avoid(n) != "" && c.Prefer != n.Name {
			t.Fatalf("%s was given to %s, which it avoids", c.Key, n.Name)
		}
		if c.Group != "" {
			if g := c.Group + "@" + r.Node; groups[g] {
				t.Fatalf("two of %s", g)
			} else {
				groups[g] = true
			}
		}
	}
}

func TestNewClaimsSpread(t *testing.T) {
	var claims []Claim
	for i := range 1000 {
		claims = append(claims, Claim{Key: fmt.Sprintf("ns/svc-%d", i)})
	}
	load := map[string]int{}
	for _, r := range Assign(alive("n1", "n2", "n3", "n4"), claims) {
		load[r.Node]++
	}
	if d := cmp.Diff(map[string]int{"n1": 250, "n2": 250, "n3": 250, "n4": 250}, load); d != "" {
		t.Error(d)
	}
	// Single Services in many clusters are not all placed on the first node.
	first := map[string]int{}
	for _, c := range claims {
		first[Assign(alive("n1", "n2", "n3", "n4"), []Claim{c})[c.Key].Node]++
	}
	for _, n := range slices.Sorted(maps.Keys(first)) {
		if first[n] < 180 || first[n] > 320 {
			t.Errorf("%s is first choice %d times of 1000: %v", n, first[n], first)
		}
	}
}

func TestDuplicateKeysAreOneClaim(t *testing.T) {
	a, b := Claim{Key: "a", Prefer: "n1"}, Claim{Key: "a", Prefer: "n2"}
	one, two := Assign(alive("n1", "n2"), []Claim{a, b}), Assign(alive("n1", "n2"), []Claim{b, a})
	if len(one) != 1 || one["a"].Node != "n1" || two["a"].Node != "n1" {
		t.Errorf("%v, %v", one, two)
	}
}

func TestReachString(t *testing.T) {
	if got := strings.Join([]string{Unknown.String(), Alive.String(), Dead.String()}, " "); got != "unknown alive dead" {
		t.Error(got)
	}
}
