package nbshow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// PolicyList prints the router policies among rows exactly as "ovn-nbctl lr-policy-list" does, including options.
// The tests of egressservice/master compare it with the tool.
func PolicyList(rows []nb.Row) string {
	var policies []*nbdb.LogicalRouterPolicy
	for _, r := range rows {
		if p, ok := r.Model.(*nbdb.LogicalRouterPolicy); ok {
			policies = append(policies, p)
		}
	}
	slices.SortFunc(policies, func(a, b *nbdb.LogicalRouterPolicy) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Match, b.Match))
	})
	out := "Routing Policies\n"
	for _, p := range policies {
		out += fmt.Sprintf("%10d %50s %15s", p.Priority, p.Match, p.Action)
		if len(p.Nexthops) > 0 {
			out += fmt.Sprintf(" %25s", strings.Join(p.Nexthops, ", "))
		}
		var options []string
		for _, k := range slices.Sorted(maps.Keys(p.Options)) {
			options = append(options, k+"="+p.Options[k])
		}
		if len(options) > 0 {
			out += fmt.Sprintf("%15s%s", "", strings.Join(options, ","))
		}
		out += "\n"
	}
	return out
}
