package noreroute

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// Feature owns the rows.
const Feature = "noreroute"

// Set is one of the address sets. Its rows have the family's match prefix as
// suffix, e.g. "egressservice_pods_ip4".
type Set string

// The address sets.
const (
	EgressIPPods      Set = "egressip_pods"
	EgressServicePods Set = "egressservice_pods"
	NodeIPs           Set = topology.NodeIPSet
)

// Name returns the name of the set's row of a family, to which matches refer after "$".
func (s Set) Name(f topology.Family) string { return string(s) + "_" + f.Match() }

// Owner returns the owner of the set's rows.
func (s Set) Owner() nb.Owner { return nb.Owner{Feature: Feature, Object: string(s)} }

// PolicyOwner is the owner of the policies.
var PolicyOwner = nb.Owner{Feature: Feature, Object: "policies"}

// Network holds the address ranges that the policies depend on.
type Network struct {
	Cluster []netip.Prefix // pod subnets of the cluster
	Join    []netip.Prefix // join subnets
	// NodeLocal are ranges that pods reach through their own node; see the function.
	NodeLocal []netip.Prefix
}

// families returns the families of pods.
func (n Network) families() []topology.Family {
	return slices.DeleteFunc(slices.Clone(topology.Families), func(f topology.Family) bool {
		_, ok := topology.PrefixOf(f, n.Cluster)
		return !ok
	})
}

// SetRows returns the rows of an address set, one per family. Addresses of families that
// pods do not have are left out.
func SetRows(n Network, s Set, addrs []netip.Addr) []nb.Row {
	byFamily := map[topology.Family][]netip.Addr{}
	for _, a := range addrs {
		f := topology.FamilyOf(a)
		byFamily[f] = append(byFamily[f], a)
	}
	rows := make([]nb.Row, 0, len(topology.Families))
	for _, f := range n.families() {
		sorted := byFamily[f]
		slices.SortFunc(sorted, netip.Addr.Compare)
		text := make([]string, 0, len(sorted))
		for _, a := range slices.Compact(sorted) {
			text = append(text, a.String())
		}
		rows = append(rows, nb.Row{ID: s.Name(f), Model: &nbdb.AddressSet{Name: s.Name(f), Addresses: text}})
	}
	return rows
}

// PolicyRows returns the policies.
func PolicyRows(n Network) []nb.Row {
	var rows []nb.Row
	allow := func(match string, options map[string]string) {
		rows = append(rows, nb.Row{
			ID:     match,
			Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter},
			Model: &nbdb.LogicalRouterPolicy{
				Priority: topology.PriorityNoReroute,
				Match:    match,
				Action:   nbdb.LogicalRouterPolicyActionAllow,
				Options:  options,
			},
		})
	}
	for _, f := range n.families() {
		cluster, join := of(f, n.Cluster), of(f, n.Join)
		for _, src := range cluster {
			for _, dst := range slices.Concat(cluster, join) {
				allow(fmt.Sprintf("%[1]s.src == %[2]s && %[1]s.dst == %[3]s", f.Match(), src, dst), nil)
			}
		}
		allow(fmt.Sprintf("(%[1]s.src == $%[2]s || %[1]s.src == $%[3]s) && %[1]s.dst == $%[4]s",
			f.Match(), EgressIPPods.Name(f), EgressServicePods.Name(f), NodeIPs.Name(f)),
			map[string]string{"pkt_mark": strconv.Itoa(topology.MarkPodToNode)})
	}
	return rows
}

// of returns the prefixes of a family.
func of(f topology.Family, prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool {
		return topology.FamilyOf(p.Addr()) != f
	})
}

// Addrs returns the addresses in rows of SetRows.
func Addrs(rows []nb.Row) []netip.Addr {
	var addrs []netip.Addr
	for _, r := range rows {
		set, ok := r.Model.(*nbdb.AddressSet)
		if !ok {
			continue
		}
		for _, text := range set.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}
