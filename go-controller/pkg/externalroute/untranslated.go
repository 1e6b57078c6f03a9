package externalroute

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// untranslated plans the mark of what pods send that have no translation: it is to
// leave with their addresses. The external bridge drops what has such an address
// without the mark, unless it replies to who called the pod through a gateway: a packet
// that belongs to no connection, which the gateway router cannot translate, comes out
// as the pod sent it.
func (f *family) untranslated() {
	pods := f.skip
	if f.cfg.DisableSNATMultipleGWs { // no rule covers those with gateways
		pods = f.routed
	}
	if len(pods) == 0 {
		return
	}
	set := setName("external_gateway_untranslated", f.node.Name, f.Family)
	f.addressSet(set, texts(slices.SortedFunc(slices.Values(pods), netip.Addr.Compare)))
	f.rows = append(f.rows, nb.Row{
		ID:     set,
		Parent: f.router,
		Model: &nbdb.LogicalRouterPolicy{
			Priority: topology.PriorityUntranslated,
			Match:    fmt.Sprintf("%s.src == $%s", f.Match(), set),
			Action:   nbdb.LogicalRouterPolicyActionAllow,
			Options:  map[string]string{"pkt_mark": strconv.Itoa(topology.MarkUntranslated)},
		},
	})
}
