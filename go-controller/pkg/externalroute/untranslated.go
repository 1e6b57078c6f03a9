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

// untranslated plans the marks of what is to leave with the addresses of pods: all that
// those send which have no translation, and what others answer to who called them
// through a gateway. The external bridge drops what has such an address without the
// mark: a packet that belongs to no connection, which the gateway router cannot
// translate, comes out as the pod sent it.
func (f *family) untranslated() {
	all, replies := f.skip, slices.DeleteFunc(slices.Clone(f.routed), func(a netip.Addr) bool { return slices.Contains(f.skip, a) })
	if f.cfg.DisableSNATMultipleGWs { // no rule covers those with gateways
		all, replies = f.routed, nil
	}
	f.mark("external_gateway_untranslated", all, "")
	f.mark("external_gateway_replies", replies, " && ct.rpl")
}

// mark plans the mark of what pods send.
func (f *family) mark(name string, pods []netip.Addr, when string) {
	if len(pods) == 0 {
		return
	}
	set := setName(name, f.node.Name, f.Family)
	f.addressSet(set, texts(slices.SortedFunc(slices.Values(pods), netip.Addr.Compare)))
	f.rows = append(f.rows, nb.Row{
		ID:     set,
		Parent: f.router,
		Model: &nbdb.LogicalRouterPolicy{
			Priority: topology.PriorityUntranslated,
			Match:    fmt.Sprintf("%s.src == $%s%s", f.Match(), set, when),
			Action:   nbdb.LogicalRouterPolicyActionAllow,
			Options:  map[string]string{"pkt_mark": strconv.Itoa(topology.MarkUntranslated)},
		},
	})
}
