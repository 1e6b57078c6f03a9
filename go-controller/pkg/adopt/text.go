package adopt

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb"
)

// names are the columns that best identify a row, by table.
var names = [][]string{
	{"name"}, {"priority", "match"}, {"ip_prefix", "nexthop", "output_port"}, {"type", "logical_ip", "external_ip"},
	{"logical_port", "dst_ip"}, {"chassis"},
}

// Name returns the name of a row in the listing.
func Name(r nb.Stored) string {
	for _, columns := range names {
		var words []string
		for _, c := range columns {
			if v := r.Value(c); v != "" {
				words = append(words, v)
			}
		}
		if len(words) > 0 && r.Value(columns[0]) != "" {
			return strings.Join(words, " ")
		}
	}
	return r.UUID
}

// Text writes the listing in human-readable form: a line for each row that is not understood, and the number of the
// others.
func (l Listing) Text(w io.Writer) {
	fmt.Fprintf(w, "Rows of ovnkube: %d\n", l.Ours)
	fmt.Fprintf(w, "Rows that are understood: %d\n", len(l.Understood))
	type kind struct {
		feature, table string
		replaced       bool
	}
	count := map[kind]int{}
	var kinds []kind
	for _, u := range l.Understood {
		k := kind{u.Mark.Owner.Feature, u.Row.Table, u.Replaced}
		if count[k]++; count[k] == 1 {
			kinds = append(kinds, k)
		}
	}
	slices.SortStableFunc(kinds, func(a, b kind) int { return strings.Compare(a.feature, b.feature) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range kinds {
		becomes := "adopted"
		if k.replaced {
			becomes = "replaced"
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%s\n", k.feature, k.table, count[k], becomes)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "Rows that are not understood, and stay as they are: %d\n", len(l.Left))
	for _, left := range l.Left {
		in := ""
		if left.In != (nb.Parent{}) {
			in = fmt.Sprintf(", in %s %s", left.In.Table, left.In.Name)
		}
		fmt.Fprintf(w, "  %s %s%s\n", left.Row.Table, Name(left.Row), in)
	}
}
