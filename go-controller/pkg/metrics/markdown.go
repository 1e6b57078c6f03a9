package metrics

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes the table of all metrics as a documentation page.
func Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(head)
	for _, of := range []struct {
		process Process
		title   string
	}{{process, "Every process"}, {node, "ovnkube on each node"}, {leading, "The leader of the masters"}} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n", of.title)
		for _, d := range all {
			if d.Of != of.process {
				continue
			}
			labels := "-"
			if len(d.Labels) > 0 {
				labels = "`" + strings.Join(d.Labels, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, labels, d.Help)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const head = `<!-- Generated from go-controller/pkg/metrics by "make generate". -->

# Metrics

Each process of ovnkube serves its metrics at ` + "`/metrics`" + ` of ` + "`--metrics-bind-address`" + `; those of the Go runtime and of the process
(` + "`go_*`, `process_*`" + `) are there as well. A histogram has the series ` + "`_bucket`, `_sum` and `_count`" + `.

The metrics of the leader come from the one process that leads the masters, and from no other. When another one takes over, counters
and histograms begin anew there, as ` + "`rate()` and `increase()`" + ` expect after a restart; sum over the processes. Labels have nodes
as values, and never objects or pods: which object a number is about its status says, see [conditions.md](conditions.md).

What is on the way from the API server to ovnkube is not counted yet, and the numbers of objects and addresses appear once the leader has
read all objects. A time that begins with the death of a node begins with its last answer to a probe; nodes that are not probed, or
are deleted, have none.
`
