package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/egressip"
	"github.com/ovnkube/ovnkube/go-controller/pkg/egressservice"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/topology"
)

// rows adds rows of the northbound database to the implementation of a verdict. Address sets are
// left out, since they contain many pods.
func (d *verdict) rows(rows ...nb.Row) {
	if !d.detailed {
		return
	}
	for _, r := range rows {
		if _, set := r.Model.(*nbdb.AddressSet); !set {
			d.parts = append(d.parts, Implementation{What: nb.Text(table(r), r), Row: r})
		}
	}
}

// onNode adds kernel state of a node to the implementation of a verdict.
func (d *verdict) onNode(node, format string, args ...any) {
	if d.detailed {
		d.parts = append(d.parts, Implementation{Node: node, What: fmt.Sprintf(format, args...)})
	}
}

// egressIPParts adds the rows and node rules for a pod that an EgressIP has.
func (v *view) egressIPParts(d *verdict, state egressip.State) {
	d.rows(state.Rows()...)
	for _, s := range d.sources {
		if s.Secondary {
			d.onNode(s.Node, "rule %d: from %s to the routing table of the interface in %s", topology.RuleEgressIP, v.addr, s.Network)
			d.onNode(s.Node, "nat %s: what is from %s and leaves by it gets the address %s", egressip.ChainSNAT, v.addr, s.Address)
		}
	}
}

// egressServiceParts adds the rules that a node has for a pod that an EgressService has.
func (v *view) egressServiceParts(d *verdict, s egressservice.Service, node string) {
	rules := egressservice.NodeState(s, node).Rules(s.Key)
	for _, chain := range slices.SortedFunc(maps.Keys(rules), func(a, b host.ChainKey) int { return strings.Compare(a.Table+a.Name, b.Table+b.Name) }) {
		for _, r := range rules[chain] {
			if strings.Contains(string(r)+" ", " "+topology.HostPrefix(v.addr).String()+" ") {
				d.onNode(node, "%s %s: %s", chain.Table, chain.Name, r)
			}
		}
	}
	if s.Network != "" {
		d.onNode(node, "rule %d: from %s to the routing table %s", topology.RuleEgressServiceNetwork, v.addr, s.Network)
	}
}
