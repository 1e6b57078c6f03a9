package externalroute

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// nextHop is the OVN field that contains the next hop chosen by a router.
var nextHop = map[topology.Family]string{topology.IPv4: "reg0", topology.IPv6: "xxreg0"}

// untranslated plans the marks on what pods send to gateways that expect the pods' own addresses.
// OVN itself adds a gateway to its routes when its session comes up, and removes it when the session goes
// down; the rest of the rows follows. The external bridge drops what must not leave in between: packets with
// the mark that are translated, and packets that have the address of a pod and no mark,
// unless they reply to clients that reached the pod through a gateway: a packet that belongs to no connection,
// which the gateway router cannot translate, leaves it as the pod sent it.
func (f *family) untranslated() {
	byHop := map[netip.Addr][]netip.Addr{}
	for _, a := range f.bare {
		for _, hop := range f.via[a] {
			byHop[hop] = append(byHop[hop], a)
		}
	}
	for _, a := range f.early {
		for _, hop := range f.via[a] {
			// The usual route through the same machine has translated packets, and nothing tells them apart.
			if !slices.Contains(f.node.Gateway.NextHops, hop) {
				byHop[hop] = append(byHop[hop], a)
			}
		}
	}
	for _, hop := range slices.SortedFunc(maps.Keys(byHop), netip.Addr.Compare) {
		set := setName("external_gateway_untranslated", f.node.Name, f.Family) + "_" + strings.NewReplacer(".", "_", ":", "_").Replace(hop.String())
		f.addressSet(set, texts(byHop[hop]))
		f.rows = append(f.rows, nb.Row{
			ID:     set,
			Parent: f.router,
			Model: &nbdb.LogicalRouterPolicy{
				Priority: topology.PriorityUntranslated,
				Match:    fmt.Sprintf("%s.src == $%s && %s == %s", f.Match(), set, nextHop[f.Family], hop),
				Action:   nbdb.LogicalRouterPolicyActionAllow,
				Options:  map[string]string{"pkt_mark": strconv.Itoa(topology.MarkUntranslated)},
			},
		})
	}
}
