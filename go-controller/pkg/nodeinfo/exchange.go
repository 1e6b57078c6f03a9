package nodeinfo

import (
	"maps"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// part is an annotation of a node.
type part struct {
	*state
	name string
}

// exchange lets values take effect that are refused only because of each other, as when two nodes have got each
// other's addresses, and reports whether there are any. All nodes that have what such a value claims have given it up:
// they have written other values for long enough, which take effect at the same time.
func (r *resolver) exchange(nodes []*state) bool {
	s := search{resolver: r, claims: map[part]claim{}, over: map[part]bool{}, claimed: map[any][]part{}}
	var all []part
	for _, n := range nodes {
		for _, name := range kube.NodeAnnotations() {
			if p := (part{n, name}); p.lasting() {
				all = append(all, s.together(p)...)
			}
		}
	}
	for _, p := range all {
		p.effective[p.name] = p.written[p.name]
		delete(p.refused, p.name)
	}
	for _, p := range all {
		r.has(p.state, p.without(""))
	}
	return len(all) > 0
}

// search is a search for values that can take effect together. It looks at each value once: there may be as many as
// nodes in the cluster.
type search struct {
	*resolver
	claims  map[part]claim
	over    map[part]bool  // the values that take effect, and those that have been found to be unable to
	claimed map[any][]part // the values that take effect, by what they claim
}

// claim is what a value claims.
type claim struct {
	topology.Node
	from []part // the values of other nodes that it would take something from
	free bool   // it could take effect but for these
}

// together returns the refused values that have to take effect together with the given one; none if one of them
// would still take something from another node.
func (s *search) together(first part) []part {
	set := map[part]bool{}
	if !s.reach(first, set) {
		return nil
	}
	claimed := map[any][]part{}
	for p := range set {
		for _, key := range keys(s.claims[p].Node) {
			for _, q := range slices.Concat(s.claimed[key], claimed[key]) {
				if p.state != q.state && (s.takes(p, q) || s.takes(q, p)) {
					s.over[first] = true
					return nil
				}
			}
			claimed[key] = append(claimed[key], p)
		}
	}
	for p := range set {
		s.over[p] = true
	}
	for key, parts := range claimed {
		s.claimed[key] = append(s.claimed[key], parts...)
	}
	return slices.Collect(maps.Keys(set))
}

// reach adds the values to the set that have to take effect together with the given one, and reports whether they can.
func (s *search) reach(p part, set map[part]bool) bool {
	if set[p] {
		return true
	}
	set[p] = true
	c := s.claim(p)
	can := !s.over[p] && c.free && !slices.ContainsFunc(c.from, func(q part) bool { return !s.reach(q, set) })
	if !can {
		s.over[p] = true
	}
	return can
}

// takes reports whether two values claim the same.
func (s *search) takes(p, q part) bool {
	return s.compare(p.name, s.claims[p].Node, s.claims[q].Node) != nil
}

// claim returns what a value claims.
func (s *search) claim(p part) claim {
	if c, known := s.claims[p]; known {
		return c
	}
	c := claim{Node: p.claims(p.written), free: s.released(p)}
	if c.free {
		c.from = s.from(p, c.Node)
	}
	s.claims[p] = c
	return c
}

// from returns the values of other nodes that what a value claims belongs to.
func (s *search) from(p part, claims topology.Node) []part {
	var from []part
	for other := range s.contested(claims) {
		if other == p.state || s.compare(p.name, claims, other.node) == nil {
			continue
		}
		for name := range other.effective {
			q := part{other, name}
			if s.compare(p.name, claims, q.claims(other.effective)) != nil {
				from = append(from, q)
			}
		}
	}
	return from
}

// lasting reports whether a node has written a value that has been refused for as long as every value has to be there.
func (p part) lasting() bool {
	_, there := p.written[p.name]
	f, refused := p.refused[p.name]
	return there && refused && f.lasts
}

// released reports whether a node has written a value that could take effect but for other nodes, for as long as every
// value has to be there.
func (r *resolver) released(p part) bool {
	if !p.lasting() {
		return false
	}
	value := p.written[p.name]
	next, err := r.valid(p.state, p.name, value)
	return err == nil && r.permitted(p.state, p.name, value, true, next) == nil
}

// claims returns what a node has by only this annotation, of the given ones.
func (p part) claims(annotations map[string]string) topology.Node {
	n := topology.Node{Name: p.state.name}
	_ = kube.DecodeNodeAnnotation(p.name, annotations[p.name], &n) // it has been decoded before
	return n
}

// keys are what nodes that collide have in common. Subnets collide if they overlap, so this says nothing about them.
func keys(n topology.Node) []any {
	out := values(n)
	if len(n.Subnets) > 0 {
		out = append(out, kube.AnnotationNodeSubnets)
	}
	return out
}
