package nodeinfo

import (
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
	for _, s := range nodes {
		for _, name := range kube.NodeAnnotations() {
			set := r.together(part{s, name})
			for _, p := range set {
				p.effective[p.name] = p.written[p.name]
				delete(p.refused, p.name)
			}
			for _, p := range set {
				p.node = p.without("")
			}
			if len(set) > 0 {
				return true
			}
		}
	}
	return false
}

// together returns the refused values that have to take effect together with the given one; none if one of them
// would still take something from another node.
func (r *resolver) together(first part) []part {
	set := []part{first}
	for i := 0; i < len(set); i++ { // the set grows
		p := set[i]
		if !r.released(p) {
			return nil
		}
		next := p.claims(p.written)
		for _, other := range r.states {
			if other == p.state || collision(p.name, next, other.node) == nil {
				continue
			}
			for name := range other.effective {
				q := part{other, name}
				if collision(p.name, next, q.claims(other.effective)) != nil && !slices.Contains(set, q) {
					set = append(set, q)
				}
			}
		}
	}
	for _, p := range set {
		for _, q := range set {
			if p.state != q.state && collision(p.name, p.claims(p.written), q.claims(q.written)) != nil {
				return nil
			}
		}
	}
	return set
}

// released reports whether a node has written a value that could take effect but for other nodes, for as long as every
// value has to be there.
func (r *resolver) released(p part) bool {
	value, there := p.written[p.name]
	if f, refused := p.refused[p.name]; !there || !refused || !f.lasts {
		return false
	}
	next, err := r.valid(p.state, p.name, value)
	return err == nil && r.permitted(p.state, p.name, value, there, next) == nil
}

// claims returns what a node has by only this annotation, of the given ones.
func (p part) claims(annotations map[string]string) topology.Node {
	n := topology.Node{Name: p.state.name}
	_ = kube.DecodeNodeAnnotation(p.name, annotations[p.name], &n) // it has been decoded before
	return n
}
