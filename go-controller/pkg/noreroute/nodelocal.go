package noreroute

import (
	"net/netip"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// NodeLocal returns the ranges of addresses that refer to a different machine on each node,
// such as a cloud's metadata service: the link-local and the configured ranges, without the
// parts that the cluster itself uses.
func NodeLocal(configured, used []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range slices.Concat(topology.LinkLocal, configured) {
		out = append(out, without(p.Masked(), used)...)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// without returns the parts of a range that do not overlap any of others.
func without(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	i := slices.IndexFunc(others, p.Overlaps)
	switch {
	case i < 0:
		return []netip.Prefix{p}
	case others[i].Bits() <= p.Bits():
		return nil
	}
	halves := topology.Halves(p)
	return append(without(halves[0], others), without(halves[1], others)...)
}

// NodeRows returns the address sets of the hosts, which pods reach as if no egress feature
// existed, and of the ranges that they reach through their own node.
func NodeRows(n Network, hosts []netip.Addr) []nb.Row {
	rows := SetRows(n, NodeIPs, hosts)
	for i, f := range n.families() {
		set := rows[i].Model.(*nbdb.AddressSet)
		for _, p := range of(f, n.NodeLocal) {
			set.Addresses = append(set.Addresses, p.String())
		}
	}
	return rows
}
