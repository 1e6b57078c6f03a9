package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// replies plans the policies that let answers go back the way the question came.
// Where the client's address is kept, an answer has the pod's address and that of
// a client outside, as what the pod itself sends there: the egress features would
// lead it to another node, which knows nothing of the connection. A router cannot
// see that a packet is an answer, but it can see that it comes from the port that
// the Service leads to.
func (p *planner) replies() []nb.Row {
	if !p.config.Steered || !p.ExternalLocal {
		return nil
	}
	type source struct {
		protocol string
		port     uint16
		family   topology.Family
	}
	pods := map[source][]netip.Addr{}
	var order []source
	for _, port := range p.Ports {
		for _, e := range port.Candidates { // also those that only finish what they began
			if !e.Own {
				continue
			}
			s := source{port.Protocol, e.To.Port(), family(e)}
			if pods[s] == nil {
				order = append(order, s)
			}
			pods[s] = append(pods[s], e.To.Addr())
		}
	}
	rows := make([]nb.Row, 0, len(order))
	for _, s := range order {
		list := pods[s]
		slices.SortFunc(list, netip.Addr.Compare)
		var addresses []string
		for _, a := range slices.Compact(list) {
			addresses = append(addresses, a.String())
		}
		rows = append(rows, nb.Row{
			ID:     fmt.Sprintf("replies %s %d %s", strings.ToUpper(s.protocol), s.port, s.family),
			Parent: nb.Parent{Table: nbdb.LogicalRouterTable, Name: topology.ClusterRouter},
			Model: &nbdb.LogicalRouterPolicy{
				Priority: topology.PriorityServiceReply,
				Match:    fmt.Sprintf("%s.src == {%s} && %s.src == %d", s.family.Match(), strings.Join(addresses, ", "), s.protocol, s.port),
				Action:   nbdb.LogicalRouterPolicyActionAllow,
			},
		})
	}
	return rows
}
