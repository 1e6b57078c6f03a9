package nodeinfo

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// holders are the nodes by what others could take from them, so that a value is compared only with those of the nodes that it could
// collide with.
type holders map[any][]*state

// inside is the key of the nodes with a subnet in a range.
type inside netip.Prefix

// has notes what a node has from now on.
func (r *resolver) has(s *state, n topology.Node) {
	r.gaveUp(s)
	s.node = n
	for _, key := range r.cluster.offers(n) {
		if there := r.holders[key]; len(there) == 0 || there[len(there)-1] != s {
			r.holders[key] = append(there, s)
		}
	}
}

// remove forgets a node.
func (r *resolver) remove(name string) {
	r.gaveUp(r.states[name])
	delete(r.states, name)
}

// gaveUp removes a node from the holders.
func (r *resolver) gaveUp(s *state) {
	for _, key := range r.cluster.offers(s.node) {
		there := slices.DeleteFunc(r.holders[key], func(o *state) bool { return o == s })
		if r.holders[key] = there; len(there) == 0 {
			delete(r.holders, key)
		}
	}
}

// contested returns the nodes that could have some of what a node claims.
func (r *resolver) contested(claims topology.Node) map[*state]bool {
	found := map[*state]bool{}
	for _, key := range r.cluster.asks(claims) {
		for _, s := range r.holders[key] {
			found[s] = true
		}
	}
	return found
}

// offers are the keys of what others could take from a node.
func (c Cluster) offers(n topology.Node) []any {
	// An address may be on many hosts: only those that are also in another annotation are taken.
	n.Host = nil
	out := values(n)
	for _, p := range n.Subnets {
		out = append(out, p.Masked())
		for _, q := range c.around(p) {
			out = append(out, inside(q))
		}
	}
	return out
}

// asks are the keys of whoever has what a node claims. Of two subnets that overlap, one contains the other.
func (c Cluster) asks(n topology.Node) []any {
	out := values(n)
	for _, p := range n.Subnets {
		out = append(out, inside(p.Masked()))
		for _, q := range c.around(p) {
			out = append(out, q)
		}
	}
	return out
}

// around returns a subnet and the ranges around it, up to that of the cluster.
func (c Cluster) around(p netip.Prefix) []netip.Prefix {
	widest := p.Bits()
	for _, r := range c.Cluster {
		if r.Contains(p.Addr()) {
			widest = min(widest, r.Bits())
		}
	}
	var out []netip.Prefix
	for bits := p.Bits(); bits >= widest; bits-- {
		q, _ := p.Addr().Prefix(bits) // it has as many bits
		out = append(out, q)
	}
	return out
}

// values are the keys of what a node has or claims besides its subnets.
func values(n topology.Node) []any {
	var out []any
	for _, p := range slices.Concat(n.Join, n.Primary, n.Host, n.Gateway.Addrs, n.Gateway.External.Addrs) {
		out = append(out, p.Addr())
	}
	for _, text := range []string{n.Chassis, n.Gateway.MAC, n.Gateway.External.MAC} {
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}
