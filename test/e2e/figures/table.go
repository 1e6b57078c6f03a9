package figures

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable prints a run: with so few values, the median and the worst value are all that can be
// said.
func WriteTable(w io.Writer, run []Figure) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "figure\ttest\ttimes\tmedian\tworst\tpromised\tallowed")
	for _, r := range Rows(run) {
		note := ""
		if r.Worst() > r.Limit() {
			note = "exceeded"
		}
		fmt.Fprintf(tab, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Cluster, len(r.Values),
			value(r.Median(), r.Unit), value(r.Worst(), r.Unit), value(r.Promised, r.Unit), value(r.Limit(), r.Unit), note)
	}
	return tab.Flush()
}

// WriteComparison prints two runs side by side.
func WriteComparison(w io.Writer, before, after []Figure) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "figure\ttest\tmedian A\tmedian B\tworst A\tworst B\tallowed")
	old := map[[2]string]Row{}
	for _, r := range Rows(before) {
		old[[2]string{r.Name, r.Cluster}] = r
	}
	for _, b := range Rows(after) {
		key := [2]string{b.Name, b.Cluster}
		a, known := old[key]
		delete(old, key)
		median, worst := "-", "-"
		if known {
			median, worst = value(a.Median(), a.Unit), value(a.Worst(), a.Unit)
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", b.Name, b.Cluster, median, value(b.Median(), b.Unit),
			worst, value(b.Worst(), b.Unit), value(b.Limit(), b.Unit))
	}
	for _, r := range Rows(before) {
		if a, left := old[[2]string{r.Name, r.Cluster}]; left {
			fmt.Fprintf(tab, "%s\t%s\t%s\t-\t%s\t-\t%s\n", a.Name, a.Cluster, value(a.Median(), a.Unit), value(a.Worst(), a.Unit), value(a.Limit(), a.Unit))
		}
	}
	return tab.Flush()
}

func value(v float64, unit string) string { return fmt.Sprintf("%.0f %s", v, unit) }
