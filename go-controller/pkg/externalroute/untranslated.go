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

// nextHop is the field of OVN that has where a router sends a packet next.
var nextHop = map[topology.Family]string{topology.IPv4: "reg0", topology.IPv6: "xxreg0"}

// untranslated plans the marks of what pods send that have no translation: it is to
// leave with their addresses, and by their gateways only. OVN takes a gateway whose session
// goes down out of its routes by itself, and pods leave by the usual route until the rest
// of their rows has followed. The external bridge drops what has such an address
// without the mark, unless it replies to who called the pod through a gateway: a packet
// that belongs to no connection, which the gateway router cannot translate, comes out
// as the pod sent it.
func (f *family) untranslated() {
	pods := f.skip
	if f.cfg.DisableSNATMultipleGWs { // no rule covers those with gateways
		pods = f.routed
	}
	byHop := map[netip.Addr][]netip.Addr{}
	for _, a := range pods {
		for _, hop := range f.via[a] {
			byHop[hop] = append(byHop[hop], a)
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
