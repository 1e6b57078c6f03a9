package result

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable prints a run, with medians of repeated measurements.
func WriteTable(w io.Writer, run []Result) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	names := []string{"size", "phase", "times"}
	filled := filledIn(run)
	for _, c := range filled {
		names = append(names, c.name)
	}
	fmt.Fprintln(tab, strings.Join(names, "\t"))
	phases := Phases(run)
	for _, p := range phases {
		cells := []string{p.size(), p.Name, fmt.Sprint(len(p.All))}
		for _, c := range filled {
			cells = append(cells, text(c, p.Median(c.value)))
		}
		fmt.Fprintln(tab, strings.Join(cells, "\t"))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, p := range phases {
		last := p.All[len(p.All)-1]
		if len(last.Kinds) > 0 {
			fmt.Fprintf(w, "%s, last insertion of each kind in ms: %s\n", p.Name, pairs(last.Kinds, "%.0f"))
		}
		if len(last.Writes) > 0 {
			fmt.Fprintf(w, "%s, API writes: %s\n", p.Name, pairs(last.Writes, "%d"))
		}
		if len(last.Execs) > 0 {
			fmt.Fprintf(w, "%s, programs: %s\n", p.Name, pairs(last.Execs, "%d"))
		}
		if len(last.Requests) > 0 {
			fmt.Fprintf(w, "%s, API requests: %s\n", p.Name, pairs(last.Requests, "%d"))
		}
	}
	return nil
}

// filledIn returns the columns that have any value.
func filledIn(run []Result) []column {
	return slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(run, func(r Result) bool { return c.value(r) != 0 })
	})
}

func (p Phase) size() string {
	if p.Size.Times == 1 {
		return p.Size.Name
	}
	return fmt.Sprintf("%s x%d", p.Size.Name, p.Size.Times)
}

// text formats a value; 0 is shown as absent.
func text(c column, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(c.format, v)
}

func pairs[V any](m map[string]V, format string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key+" "+fmt.Sprintf(format, m[key]))
	}
	return strings.Join(out, ", ")
}

// compared are the columns in which two runs are compared, if they have values.
var compared = []string{"rows ms", "done ms", "CPU s", "peak MiB", "transactions", "API writes", "programs"}

// WriteComparison prints two runs side by side.
func WriteComparison(w io.Writer, before, after []Result) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	names := []string{"size", "phase"}
	shown := slices.DeleteFunc(filledIn(slices.Concat(before, after)), func(c column) bool { return !slices.Contains(compared, c.name) })
	for _, c := range shown {
		names = append(names, c.name+" A", c.name+" B")
	}
	fmt.Fprintln(tab, strings.Join(names, "\t"))
	a, b := Phases(before), Phases(after)
	same := func(p Phase) func(Phase) bool {
		return func(o Phase) bool { return o.Name == p.Name && o.Size == p.Size }
	}
	for _, p := range a {
		if i := slices.IndexFunc(b, same(p)); i >= 0 {
			line(tab, shown, p, &p, &b[i])
		} else {
			line(tab, shown, p, &p, nil)
		}
	}
	for _, p := range b {
		if !slices.ContainsFunc(a, same(p)) {
			line(tab, shown, p, nil, &p)
		}
	}
	return tab.Flush()
}

// line prints a phase of two runs; it is nil for a run that does not have it.
func line(w io.Writer, shown []column, p Phase, a, b *Phase) {
	cells := []string{p.size(), p.Name}
	for _, c := range shown {
		for _, run := range []*Phase{a, b} {
			if run == nil {
				cells = append(cells, "")
				continue
			}
			cells = append(cells, text(c, run.Median(c.value)))
		}
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}
